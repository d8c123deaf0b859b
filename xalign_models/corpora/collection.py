"""The user's own queries, documents and judgements, in BEIR's layout.

    <folder>/queries.jsonl       {"_id": "q1", "text": "a query", "lang": "de"}
    <folder>/corpus.jsonl        {"_id": "d1", "title": "a title", "text": "a document", "lang": "en"}
    <folder>/qrels/test.tsv      query-id <tab> corpus-id <tab> score

Titles are optional. Where a record has no ``lang``, its language is found. Scores above zero are relevant.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_models.corpora.base import Corpus, half, read_lines
from xalign_models.errors import DataError, FileError, LanguageError, plural
from xalign_models.files import file_digest, noting, parse_json
from xalign_models.identification import UNDETERMINED, identifiable, identify
from xalign_models.languages import LanguageText, canonical

QUERIES, DOCUMENTS, JUDGEMENTS = "queries.jsonl", "corpus.jsonl", "qrels"
HIGHEST = 1_000_000
"""Maximum grade: sums of far larger ones overflow."""
RARE = 0.02
"""Share of the texts below which a language that was found is an error of the finder."""


@dataclass(frozen=True)
class Collection:
    """Queries with relevant documents, among all documents.

    Attributes:
        queries: The judged queries.
        documents: All documents, the candidates of every query; a title stands before its text.
        relevant: Query id to document id to grade, a number above zero.
        identity: Digest of the files and of the half.
        held_out: Texts of documents that are queries of the other half as well; no fit reads them.
    """

    queries: Mapping[str, tuple[str, str]]
    documents: Mapping[str, tuple[str, str]]
    relevant: Mapping[str, Mapping[str, float]]
    identity: str
    held_out: frozenset[str] = frozenset()

    def corpus(self, name: str) -> Corpus:
        """The texts of documents and judged queries by language, without those held out."""
        rows: dict[str, list[str]] = {}
        for text, language in [*self.documents.values(), *self.queries.values()]:
            if text not in self.held_out:
                rows.setdefault(language, []).append(text)
        return Corpus(name, "monolingual", (), tuple(sorted(rows)), rows.__getitem__, lambda _: self.identity)


def is_collection(path: Path) -> bool:
    """Whether a folder has queries or judgements, so that it is not parallel text."""
    return (path / QUERIES).exists() or (path / JUDGEMENTS).is_dir()


def read_collection(path: Path, part: str = "") -> Collection:
    """Read queries, documents and judgements.

    Args:
        path: The folder.
        part: "" for all queries; ``fit`` and ``test`` are disjoint halves of them, with all documents.

    Raises:
        DataError: A file is missing, too large or malformed, an id is missing, repeated or unknown, or nothing is
            judged; the message names the file and the line.
    """
    files = (path / QUERIES, path / DOCUMENTS, _judgements_file(path))
    with noting({}):
        queries, documents = (texts_by_id(read_records(file)) for file in files[:2])
        relevant = _judgements(files[2], queries, documents)
        digests = [file_digest(file) for file in files]
    judged = {queries[query][0] for query in relevant}
    if part:
        relevant = {query: grades for query, grades in relevant.items() if half(queries[query][0]) == part}
    if not relevant:
        raise DataError(f"{files[2]}: no query{f' of the {part} half' if part else ''} has a relevant document.")
    held_out = judged - {queries[query][0] for query in relevant}
    held_out &= {text for text, _ in documents.values()}
    identity = hashlib.sha256(" ".join((*digests, part, "0", *sorted(held_out))).encode()).hexdigest()
    spoken = _with_languages([*queries.values(), *documents.values()])
    asked, stored = dict(zip(queries, spoken, strict=False)), dict(zip(documents, spoken[len(queries) :], strict=True))
    return Collection({query: asked[query] for query in relevant}, stored, relevant, identity, frozenset(held_out))


def _judgements_file(path: Path) -> Path:
    files = sorted((path / JUDGEMENTS).glob("*.tsv"))
    chosen = [file for file in files if file.name == "test.tsv"] or files
    if len(chosen) != 1:
        names = ", ".join(file.name for file in files) or "no .tsv"
        raise DataError(f"{path / JUDGEMENTS} has {names}; it needs test.tsv, or one file with query, document, score.")
    return chosen[0]


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place for messages.

    Raises:
        DataError: A line is too long or no object, or the file is missing or too large.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, parse_json(line.encode(), place)
            except (FileError, UnicodeError) as error:
                raise DataError(str(error)) from None


def texts_by_id(records: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, LanguageText]:
    """The text and language of each record by its ``_id`` or ``id``; the language is None where there is no ``lang``.

    Raises:
        DataError: An id or a text is missing, an id is repeated, or a language is unknown.
    """
    texts: dict[str, LanguageText] = {}
    for place, record in records:
        identifier = id_of(record, "_id" if "_id" in record else "id", place)
        parts = [record.get("title") or "", record.get("text")]
        if not all(isinstance(part, str) for part in parts) or not (text := " ".join(map(str, parts)).strip()):
            raise DataError(f"{place}: no text in the field 'text'.")
        if "\0" in text:
            raise DataError(f"{place} has a NUL byte; it is not text.")
        if identifier in texts:
            raise DataError(f"{place}: the id {identifier[:80]!r} is repeated; give each record its own.")
        try:
            texts[identifier] = text, None if record.get("lang") is None else canonical(str(record["lang"]))
        except LanguageError as error:
            raise DataError(f"{place}: {error}") from None
    return texts


def id_of(record: dict[str, Any], field: str, place: str) -> str:
    """The id in a field of a record, a text or a whole number, without white space around it.

    Raises:
        DataError: There is none.
    """
    value = record.get(field)
    identifier = str(value).strip() if isinstance(value, str | int) else ""
    if value is None or value == "":
        raise DataError(f"{place}: no id in the field {field!r}; the fields are {', '.join(record)[:200] or 'none'}.")
    if isinstance(value, bool) or not identifier:
        raise DataError(
            f"{place}: the id {str(value)[:80]!r} in the field {field!r} is neither text nor a whole number."
        )
    return identifier


def _judgements(path: Path, queries: Container[str], documents: Container[str]) -> dict[str, dict[str, float]]:
    relevant: dict[str, dict[str, float]] = {}
    written = ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())
    for row, (number, line) in enumerate(written):
        fields, place = line.split("\t"), f"{path}, line {number}"
        if row == 0 and fields[0].strip().lower().replace("_", "-") in {"query-id", "qid"}:
            continue
        if len(fields) != 3:
            raise DataError(
                f"{place}: {plural(len(fields), 'column')}; query, document and score are needed, with tabs."
            )
        query, document = (field.strip() for field in fields[:2])
        for identifier, known, name in ((query, queries, QUERIES), (document, documents, DOCUMENTS)):
            if identifier not in known:
                raise DataError(f"{place}: the id {identifier[:80]!r} is not in {name}.")
        try:
            grade = float(fields[2])
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise DataError(f"{place}: the score {fields[2][:80]!r} is not a number.")
        if grade > HIGHEST:
            raise DataError(f"{place}: the score {fields[2][:80]!r} is over {HIGHEST:,}; give lower scores.")
        if document in relevant.get(query, ()):
            raise DataError(f"{place} judges {query[:80]!r} and {document[:80]!r} twice.")
        relevant.setdefault(query, {})[document] = grade
    positive = ((query, {d: grade for d, grade in grades.items() if grade > 0}) for query, grades in relevant.items())
    return {query: grades for query, grades in positive if grades}


def _with_languages(texts: Sequence[LanguageText]) -> list[tuple[str, str]]:
    """The texts with a language each; an unknown one is found among those that are not rare, or is the most frequent.

    Raises:
        LanguageError: py3langid, which finds languages, is not installed.
    """
    unknown = [text for text, language in texts if language is None]
    found: Iterator[str] = iter(())
    if unknown:
        counts = Counter(language for language, _ in identify(unknown, identifiable()) if language != UNDETERMINED)
        counts.update(language for _, language in texts if language)
        if not counts:
            raise DataError('No language is found in the records; add "lang" to each.')
        common = [code for code, count in counts.most_common() if count >= RARE * len(unknown)] or [*counts]
        found = (common[0] if code == UNDETERMINED else code for code, _ in identify(unknown, common))
    return [(text, language or next(found)) for text, language in texts]
