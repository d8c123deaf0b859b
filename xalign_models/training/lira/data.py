"""Training data of both stages: texts to translate, pairs with a similarity score, queries with documents."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, Corpus, file_digest, read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import TaggedText, canonical, from_iso639_1
from xalign_models.paths import data_dir

STSB = "stsb_multi_mt"
MEASURED = 512
"""Maximum number of held-out rows of each sort that an epoch is measured on."""


class Rated(NamedTuple):
    """Two texts and their similarity score."""

    first: TaggedText
    second: TaggedText
    score: float


class Search(NamedTuple):
    """A query and the document that answers it; equal texts in the same language are the same document."""

    query: TaggedText
    document: TaggedText

    @property
    def document_id(self) -> str:
        """Identifier of the document by its content."""
        return document_id(self.document)


def document_id(document: TaggedText) -> str:
    """16 hex digits that identify a document's language and text."""
    return hashlib.sha256(f"{document.lang} {document.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to measure on, and what identifies them.

    Attributes:
        train: Training rows.
        held_out: The last rows of each source; a text that a source has twice may be in both.
        fingerprints: Fingerprint of each source, by name.
        datasets: mteb's names of the data sets that hold the text.
    """

    train: list[Any]
    held_out: list[Any]
    fingerprints: dict[str, str]
    datasets: frozenset[str]


def foreign_texts(names: Sequence[str], languages: Sequence[str], samples: int, held_out: float) -> Split:
    """Texts of parallel corpora in all languages but English; the last rows of each are held out, in every language.

    Raises:
        DataError: A corpus is missing, or has none of the languages.
    """
    train, measured, prints, datasets = list[Any](), list[Any](), dict[str, str](), set[str]()
    for name in names:
        corpus = corpora.load(name)
        chosen = [code for code in _languages(corpus, languages) if code != ENGLISH]
        for language in chosen:
            train_texts, held_texts = _divided([text for text, _ in _pairs(corpus, language, samples)], held_out)
            train += [TaggedText(text, language) for text in train_texts]
            measured += [TaggedText(text, language) for text in held_texts]
        prints[name] = corpus.fingerprint([*chosen, ENGLISH])
        datasets |= set(corpus.trains)
    return _split(train, measured, prints, datasets)


def searches(names: Sequence[str], languages: Sequence[str], samples: int, held_out: float, seed: int) -> Split:
    """Translations as queries and documents, from or to English at random; or lines of a file.

    Args:
        names: Parallel corpora, or ``file:PATH`` of JSON lines with ``query``, ``query_lang``, ``document`` and
            ``document_lang``.
        languages: Canonical codes; empty for all.
        samples: Rows per corpus and language, from the top.
        held_out: Share of the rows to hold out, from the end.
        seed: Seed of the directions.

    Raises:
        DataError: A source is missing or malformed.
    """
    train, measured, prints, datasets = list[Any](), list[Any](), dict[str, str](), set[str]()
    coin = random.Random(seed)
    for name in names:
        if name.startswith("file:"):
            path = Path(name.partition(":")[2])
            rows = [
                Search(_tagged(record, "query", "query_lang"), _tagged(record, "document", "document_lang"))
                for record in _records(path, ("query", "document"), ("query_lang", "document_lang"))
            ]
            train_rows, held_rows = _divided(rows, held_out)
            train, measured = train + train_rows, measured + held_rows
            prints[name], datasets = file_digest(path), datasets | {name}
            continue
        corpus = corpora.load(name)
        chosen = [code for code in _languages(corpus, languages) if code != ENGLISH]
        for language in chosen:
            sides = _pairs(corpus, language, samples)
            pairs = [(TaggedText(foreign, language), TaggedText(english, ENGLISH)) for foreign, english in sides]
            turned = [Search(*(pair if coin.random() < 0.5 else pair[::-1])) for pair in pairs]
            train_rows, held_rows = _divided(turned, held_out)
            train, measured = train + train_rows, measured + held_rows
        prints[name] = corpus.fingerprint([*chosen, ENGLISH])
        datasets |= set(corpus.trains)
    return _split(train, measured, prints, datasets)


def rated(names: Sequence[str], languages: Sequence[str], samples: int, held_out: float, seed: int) -> Split:
    """Pairs with a similarity score.

    ``stsb_multi_mt`` has the same pairs in ten languages: each sentence of a pair is taken in a random language, so
    that there are pairs within and across languages; the first of its development rows are held out. ``file:PATH``
    names JSON lines with ``text1``, ``lang1``, ``text2``, ``lang2`` and ``score``; the last share is held out.

    Raises:
        DataError: A source is missing or malformed.
    """
    train, measured, prints, datasets = list[Any](), list[Any](), dict[str, str](), set[str]()
    for name in names:
        if name == STSB:
            root = _stsb()
            train_rows = _stsb_rows(root, "train", languages, samples, seed)
            held_rows = _stsb_rows(root, "dev", languages, min(samples, MEASURED), seed)
            prints[name] = " ".join(file_digest(file) for file in sorted((root / "data").glob("*-[td][re]*.csv")))
            prints[name] = hashlib.sha256(prints[name].encode()).hexdigest()
            datasets |= {"STSBenchmarkMultilingualSTS", "STSBenchmark"}
        elif name.startswith("file:"):
            path = Path(name.partition(":")[2])
            rows = [
                Rated(_tagged(record, "text1", "lang1"), _tagged(record, "text2", "lang2"), _score(record, path))
                for record in _records(path, ("text1", "text2"), ("lang1", "lang2"))
            ]
            train_rows, held_rows = _divided(rows[:samples], held_out)
            prints[name], datasets = file_digest(path), datasets | {name}
        else:
            raise DataError(f"lasr.ranking {name!r}: write {STSB} or file:PATH.")
        train, measured = train + train_rows, measured + held_rows
    return _split(train, measured, prints, datasets)


def _split(train: list[Any], measured: list[Any], prints: dict[str, str], datasets: set[str]) -> Split:
    if not train and prints:
        raise DataError(f"{', '.join(prints)}: no row to train on; ask for more samples or hold out fewer.")
    return Split(train, measured, prints, frozenset(datasets))


def _languages(corpus: Corpus, codes: Sequence[str]) -> list[str]:
    chosen = [code for code in corpus.languages if not codes or code in codes]
    if not set(chosen) - {ENGLISH}:
        raise DataError(f"Corpus {corpus.name!r} has none of {', '.join(codes)}; it has {', '.join(corpus.languages)}.")
    return chosen


def _pairs(corpus: Corpus, language: str, samples: int) -> list[tuple[str, str]]:
    """The first rows with both sides; rows are never dropped here, so that all languages hold out the same rows."""
    sides = (side[:samples] for side in corpus.pair(language))
    return list(zip(*sides, strict=True))


def _divided(rows: list[Any], held_out: float) -> tuple[list[Any], list[Any]]:
    """Rows to train on, and the last share of rows to hold out, both without rows that have an empty text."""
    at = len(rows) - int(len(rows) * held_out)
    return [row for row in rows[:at] if _full(row)], [row for row in rows[at:] if _full(row)]


def _full(row: Any) -> bool:
    texts = [row] if isinstance(row, str) else [part.text for part in row if isinstance(part, TaggedText)]
    return all(text.strip() for text in texts)


def _stsb() -> Path:
    base = data_dir()
    if base is None or not (base / STSB / "data").is_dir():
        raise DataError(
            f"{STSB} is missing: set XALIGN_DATA to a folder that has {STSB}/data/stsb-<language>-train.csv "
            "(github.com/PhilipMay/stsb-multi-mt)."
        )
    return base / STSB


def _stsb_rows(root: Path, part: str, languages: Sequence[str], samples: int, seed: int) -> list[Rated]:
    columns: dict[str, list[list[str]]] = {}
    available = set()
    for path in sorted((root / "data").glob(f"stsb-*-{part}.csv")):
        try:
            code = from_iso639_1(path.name.split("-")[1])
        except LanguageError:
            continue
        available.add(code)
        if not languages or code in languages:
            columns[code] = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    if not columns:
        raise DataError(f"{root} has {part} files in {', '.join(sorted(available))}; name them in lasr.languages.")
    counts = {len(rows) for rows in columns.values()}
    if len(counts) != 1:
        raise DataError(f"{root}: the {part} files of {', '.join(columns)} differ in their number of rows.")
    draw, codes, pairs = random.Random(f"{seed} {part}"), sorted(columns), []
    for row in range(min(samples, *counts)):
        code, other = draw.choice(codes), draw.choice(codes)
        try:
            first, second = TaggedText(columns[code][row][0], code), TaggedText(columns[other][row][1], other)
            score = float(columns[code][row][2])
        except (IndexError, ValueError):
            raise DataError(f"{root}: row {row + 1} of the {part} files is not sentence, sentence, score.") from None
        pairs.append(Rated(first, second, score))
    return [pair for pair in pairs if _full(pair)]


def _tagged(record: dict[str, Any], text: str, lang: str) -> TaggedText:
    return TaggedText(record[text], record[lang])


def _score(record: dict[str, Any], path: Path) -> float:
    try:
        return float(record["score"])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path}: {record.get('score')!r} is no score.") from None


def _records(path: Path, texts: tuple[str, ...], languages: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield {
                **record,
                **{name: str(record[name]) for name in texts},
                **{name: canonical(record[name]) for name in languages},
            }
        except (ValueError, KeyError, TypeError, AttributeError, LanguageError) as error:
            raise DataError(
                f"{path}, line {number}: an object with {', '.join((*texts, *languages))} was expected ({error})."
            ) from None
