"""What both stages are trained on: texts to translate, pairs with a similarity score, queries with their documents."""

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
from xalign_models.languages import canonical, from_iso639_1
from xalign_models.paths import data_dir

STSB = "stsb_multi_mt"
MEASURED = 512
"""Most held-out rows of each sort that an epoch is measured on."""


class Text(NamedTuple):
    """A text in a canonical language."""

    text: str
    language: str


class Rated(NamedTuple):
    """Two texts and how alike they are."""

    first: Text
    second: Text
    score: float


class Search(NamedTuple):
    """A query and the document that answers it; documents with the same words in the same language are one."""

    query: Text
    document: Text

    @property
    def document_id(self) -> str:
        """Of the document, by its content."""
        return document_id(self.document)


def document_id(document: Text) -> str:
    """16 hex digits of a document's language and words."""
    return hashlib.sha256(f"{document.language} {document.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to measure on, and what identifies them.

    Attributes:
        train: Rows.
        held_out: The last rows of each source; a text that a source has twice may be in both.
        fingerprints: Of each source, by name.
        datasets: mteb's names of what holds the text.
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
        chosen = [one for one in _languages(corpus, languages) if one != ENGLISH]
        for language in chosen:
            own, kept = _divided([text for text, _ in _pairs(corpus, language, samples)], held_out)
            train += [Text(one, language) for one in own]
            measured += [Text(one, language) for one in kept]
        prints[name] = corpus.fingerprint([*chosen, ENGLISH])
        datasets |= set(corpus.trains)
    return _split(train, measured, prints, datasets)


def searches(names: Sequence[str], languages: Sequence[str], samples: int, held_out: float, seed: int) -> Split:
    """Translations as queries and documents, from and to English by turns of a coin; or lines of a file.

    Args:
        names: Parallel corpora, or ``file:PATH`` of JSON lines with ``query``, ``query_lang``, ``document`` and
            ``document_lang``.
        languages: Canonical codes; empty is all there are.
        samples: Rows per corpus and language, from the top.
        held_out: Share of them, from the end.
        seed: Of the coin.

    Raises:
        DataError: A source is missing or malformed.
    """
    train, measured, prints, datasets = list[Any](), list[Any](), dict[str, str](), set[str]()
    coin = random.Random(seed)
    for name in names:
        if name.startswith("file:"):
            path = Path(name.partition(":")[2])
            rows = [
                Search(Text(one["query"], one["query_lang"]), Text(one["document"], one["document_lang"]))
                for one in _records(path, ("query", "document"), ("query_lang", "document_lang"))
            ]
            own, kept = _divided(rows, held_out)
            train, measured = train + own, measured + kept
            prints[name], datasets = file_digest(path), datasets | {name}
            continue
        corpus = corpora.load(name)
        chosen = [one for one in _languages(corpus, languages) if one != ENGLISH]
        for language in chosen:
            pairs = [
                (Text(one, language), Text(english, ENGLISH)) for one, english in _pairs(corpus, language, samples)
            ]
            turned = [Search(*(pair if coin.random() < 0.5 else pair[::-1])) for pair in pairs]
            own, kept = _divided(turned, held_out)
            train, measured = train + own, measured + kept
        prints[name] = corpus.fingerprint([*chosen, ENGLISH])
        datasets |= set(corpus.trains)
    return _split(train, measured, prints, datasets)


def rated(names: Sequence[str], languages: Sequence[str], samples: int, held_out: float, seed: int) -> Split:
    """Pairs with a similarity score.

    ``stsb_multi_mt`` has the same pairs in ten languages: each sentence of a pair is taken in a language at random, so
    that pairs are within and across languages alike; the first of its development rows are held out. Of a
    ``file:PATH`` of JSON lines with ``text1``, ``lang1``, ``text2``, ``lang2`` and ``score`` the last share is.

    Raises:
        DataError: A source is missing or malformed.
    """
    train, measured, prints, datasets = list[Any](), list[Any](), dict[str, str](), set[str]()
    for name in names:
        if name == STSB:
            root = _stsb()
            own = _stsb_rows(root, "train", languages, samples, seed)
            kept = _stsb_rows(root, "dev", languages, min(samples, MEASURED), seed)
            prints[name] = " ".join(file_digest(file) for file in sorted((root / "data").glob("*-[td][re]*.csv")))
            prints[name] = hashlib.sha256(prints[name].encode()).hexdigest()
            datasets |= {"STSBenchmarkMultilingualSTS", "STSBenchmark"}
        elif name.startswith("file:"):
            path = Path(name.partition(":")[2])
            rows = [
                Rated(Text(one["text1"], one["lang1"]), Text(one["text2"], one["lang2"]), _score(one, path))
                for one in _records(path, ("text1", "text2"), ("lang1", "lang2"))
            ]
            own, kept = _divided(rows[:samples], held_out)
            prints[name], datasets = file_digest(path), datasets | {name}
        else:
            raise DataError(f"lasr.ranking {name!r}: write {STSB} or file:PATH.")
        train, measured = train + own, measured + kept
    return _split(train, measured, prints, datasets)


def _split(train: list[Any], measured: list[Any], prints: dict[str, str], datasets: set[str]) -> Split:
    if not train and prints:
        raise DataError(f"{', '.join(prints)}: no row to train on; ask for more samples or hold out fewer.")
    return Split(train, measured, prints, frozenset(datasets))


def _languages(corpus: Corpus, wanted: Sequence[str]) -> list[str]:
    found = [one for one in corpus.languages if not wanted or one in wanted]
    if not set(found) - {ENGLISH}:
        raise DataError(
            f"Corpus {corpus.name!r} has none of {', '.join(wanted)}; it has {', '.join(corpus.languages)}."
        )
    return found


def _pairs(corpus: Corpus, language: str, samples: int) -> list[tuple[str, str]]:
    """The first rows with both sides, the whole of a row deciding, so that the same rows are held out everywhere."""
    sides = (side[:samples] for side in corpus.pair(language))
    return list(zip(*sides, strict=True))


def _divided(rows: list[Any], held_out: float) -> tuple[list[Any], list[Any]]:
    """Rows to train on, and the last share of them; those with an empty text are left out of both."""
    at = len(rows) - int(len(rows) * held_out)
    return [one for one in rows[:at] if _full(one)], [one for one in rows[at:] if _full(one)]


def _full(row: Any) -> bool:
    texts = [row] if isinstance(row, str) else [one.text for one in row if isinstance(one, Text)]
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
    there = set()
    for path in sorted((root / "data").glob(f"stsb-*-{part}.csv")):
        try:
            code = from_iso639_1(path.name.split("-")[1])
        except LanguageError:
            continue
        there.add(code)
        if not languages or code in languages:
            columns[code] = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    if not columns:
        raise DataError(f"{root} has {part} files in {', '.join(sorted(there))}; name some of these in lasr.languages.")
    counts = {len(rows) for rows in columns.values()}
    if len(counts) != 1:
        raise DataError(f"{root}: the {part} files of {', '.join(columns)} have not the same rows.")
    draw, codes, found = random.Random(f"{seed} {part}"), sorted(columns), []
    for row in range(min(samples, *counts)):
        one, other = draw.choice(codes), draw.choice(codes)
        try:
            first, second, score = columns[one][row][0], columns[other][row][1], float(columns[one][row][2])
        except (IndexError, ValueError):
            raise DataError(f"{root}: row {row + 1} of the {part} files is not sentence, sentence, score.") from None
        found.append(Rated(Text(first, one), Text(second, other), score))
    return [one for one in found if _full(one)]


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
