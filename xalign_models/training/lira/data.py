"""LiRA's text: training data of both stages, and the texts of files, corpora and configurations to translate."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, file_digest, read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.files import MOST_JSON, noting, read_bytes
from xalign_models.generation.journal import read_records
from xalign_models.languages import LanguageText, TaggedText, canonical, from_iso639_1
from xalign_models.paths import data_dir
from xalign_models.training.lira.config import ArcaConfig, LasrConfig, LiraConfig
from xalign_models.training.lira.module import language_prompts

logger = logging.getLogger(__name__)

STSB = "stsb_multi_mt"
MEASURED = 512
"""Maximum number of held-out rows of each kind to measure on."""


class Rated(NamedTuple):
    """Two texts and their similarity score."""

    first: TaggedText
    second: TaggedText
    score: float


class Search(NamedTuple):
    """A query and the document that answers it; equal texts in the same language are the same document."""

    query: TaggedText
    document: TaggedText


def document_id(document: TaggedText) -> str:
    """16 hex digits that identify a document's language and text."""
    return hashlib.sha256(f"{document.lang} {document.text}".encode()).hexdigest()[:16]


@dataclass
class Split:
    """Rows to train on, rows to measure on, and their origin.

    Attributes:
        train: Training rows.
        held_out: The last rows of each source. A text that occurs twice in a source may be in both parts.
        fingerprints: Fingerprint of each source, by name.
        datasets: mteb's names of the data sets that contain the text.
    """

    train: list[Any] = field(default_factory=list)
    held_out: list[Any] = field(default_factory=list)
    fingerprints: dict[str, str] = field(default_factory=dict)
    datasets: set[str] = field(default_factory=set)

    def add(self, rows: Sequence[Any], share: float) -> None:
        """Add rows of a source, holding out the last share, and skip rows with an empty text."""
        at = len(rows) - int(len(rows) * share)
        self.train += filter(_is_full, rows[:at])
        self.held_out += filter(_is_full, rows[at:])

    def translations(
        self, name: str, languages: Sequence[str], samples: int
    ) -> Iterator[list[tuple[TaggedText, TaggedText]]]:
        """(foreign, English) texts of a corpus' first rows, for each language; records the corpus as a source.

        Raises:
            DataError: The corpus is missing, or has none of the languages.
        """
        corpus = corpora.load(name)
        foreign = [code for code in corpus.languages if code != ENGLISH and (not languages or code in languages)]
        if not foreign:
            known = ", ".join(corpus.languages)
            raise DataError(f"Corpus {corpus.name!r} has none of {', '.join(languages)}; it has {known}.")
        for language in foreign:
            sides = (side[:samples] for side in corpus.pair(language))
            yield [(TaggedText(a, language), TaggedText(b, ENGLISH)) for a, b in zip(*sides, strict=True)]
        self.fingerprints[name] = corpus.fingerprint([*foreign, ENGLISH])
        self.datasets |= set(corpus.trains)

    def file(self, name: str, fields: str, parse: Callable[[dict[str, Any]], Any]) -> list[Any]:
        """The rows that ``parse`` makes of the JSON lines of ``file:PATH``; records the file as a source.

        Raises:
            DataError: The file is missing or malformed; ``fields`` names the expected fields.
        """
        path = Path(name.partition(":")[2])
        if not path.is_file():
            raise DataError(f"There is no file {path}.")
        self.datasets.add(name)
        with noting({}):
            self.fingerprints[name] = file_digest(path)
            return list(read_records(path, fields, parse))

    def drawn(self, config: ArcaConfig | LasrConfig, batch_size: int, source: str) -> Split:
        """The split with only the random rows that the steps draw, and at most as many held-out rows.

        Warns of languages without a row; ``source`` is the field of the sources. Raises DataError if no row is left.
        """
        found = {text.lang for row in (*self.train, *self.held_out) for text in _texts(row)}
        if found and (missing := ", ".join(code for code in config.languages if code not in found)):
            logger.warning("%s: there is no text in %s, so training uses only other languages.", source, missing)
        count = None if config.max_steps is None else max(1, config.max_steps * batch_size)
        if count is not None and count < len(self.train):
            rows = random.Random(config.seed).sample(range(len(self.train)), count)
            self.train = [self.train[row] for row in sorted(rows)]
            step = -(-len(self.held_out) // min(count, MEASURED)) or 1
            self.held_out = self.held_out[::step]
        if self.fingerprints and not self.train:
            names = ", ".join(self.fingerprints)
            raise DataError(f"{names}: no row to train on; ask for more samples or hold out fewer.")
        return self


def foreign_texts(config: ArcaConfig) -> Split:
    """Foreign texts of corpora; all languages hold out the same last rows. Raises DataError if a corpus is missing."""
    split = Split()
    for name in config.text:
        for pairs in split.translations(name, config.languages, config.samples):
            split.add([foreign for foreign, _ in pairs], config.held_out)
    return split.drawn(config, config.batch_size, "arca.text")


def searches(config: LasrConfig) -> Split:
    """Queries and documents: translations, randomly from or into English, or the lines of a file.

    ``file:PATH`` names JSON lines with ``query``, ``query_lang``, ``document`` and ``document_lang``.

    Raises:
        DataError: A source is missing or malformed.
    """
    split, coin = Split(), random.Random(config.seed)
    for name in config.retrieval:
        if name.startswith("file:"):
            rows = split.file(name, "query, document, query_lang, document_lang", _search)
            split.add(rows, config.held_out)
            continue
        for pairs in split.translations(name, config.languages, config.samples):
            turned = [Search(*(pair if coin.random() < 0.5 else pair[::-1])) for pair in pairs]
            split.add(turned, config.held_out)
    return split.drawn(config, config.retrieval_batch, "lasr.retrieval")


def rated(config: LasrConfig) -> Split:
    """Pairs with a similarity score.

    ``stsb_multi_mt`` has the same pairs in ten languages. Each sentence of a pair is read in a random language, which
    gives pairs within and across languages; the first development rows are held out. ``file:PATH`` names JSON lines
    with ``text1``, ``lang1``, ``text2``, ``lang2`` and ``score``; the last share of the lines is held out.

    Raises:
        DataError: A source is missing or malformed.
    """
    split, most = Split(), config.ranking_samples
    for name in config.ranking:
        if name == STSB:
            root = _stsb()
            with noting({}):
                split.train += _stsb_rows(root, "train", config.languages, most, config.seed)
                split.held_out += _stsb_rows(root, "dev", config.languages, min(most, MEASURED), config.seed)
                digests = " ".join(file_digest(file) for file in sorted((root / "data").glob("*-[td][re]*.csv")))
            split.fingerprints[name] = hashlib.sha256(digests.encode()).hexdigest()
            split.datasets |= {"STSBenchmarkMultilingualSTS", "STSBenchmark"}
        elif name.startswith("file:"):
            split.add(split.file(name, "text1, text2, lang1, lang2, score", _rated)[:most], config.held_out)
        else:
            raise DataError(f"lasr.ranking {name!r}: write {STSB} or file:PATH.")
    return split.drawn(config, config.ranking_batch, "lasr.ranking")


def _tagged(record: dict[str, Any], text: str, lang: str) -> TaggedText:
    return TaggedText(_string(record, text), canonical(_string(record, lang)))


def _string(record: dict[str, Any], name: str) -> str:
    if not isinstance(record[name], str):
        raise ValueError(f"{name} is not a string")
    return str(record[name])


def _score(value: object) -> float:
    score = float(str(value))
    if not math.isfinite(score):
        raise ValueError(f"score {value} is not a number")
    return score


def _search(record: dict[str, Any]) -> Search:
    return Search(_tagged(record, "query", "query_lang"), _tagged(record, "document", "document_lang"))


def _rated(record: dict[str, Any]) -> Rated:
    first, second = _tagged(record, "text1", "lang1"), _tagged(record, "text2", "lang2")
    return Rated(first, second, _score(record["score"]))


def _texts(row: Any) -> Sequence[TaggedText]:
    """The texts of a row: a text, or a pair with or without a score."""
    return [row] if isinstance(row, TaggedText) else row[:2]


def _is_full(row: Any) -> bool:
    return all(text.text.strip() for text in _texts(row))


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
            try:
                columns[code] = list(csv.reader(io.StringIO(read_bytes(path, MOST_JSON).decode("utf-8"), newline="")))
            except (UnicodeDecodeError, csv.Error) as error:
                raise DataError(f"{path} cannot be read: {error}.") from None
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
            score = _score(columns[code][row][2])
        except (IndexError, ValueError):
            raise DataError(f"{root}: row {row + 1} of the {part} files must be sentence, sentence, score.") from None
        pairs.append(Rated(first, second, score))
    return [pair for pair in pairs if _is_full(pair)]


def with_prompts(texts: Iterable[LanguageText]) -> list[LanguageText]:
    """Texts with their language if LiRA has a prompt for it, else with None."""
    prompts = dict(language_prompts())
    return [(text, code if code in prompts else None) for text, code in texts]


def file_texts(path: Path, languages: Sequence[str]) -> Iterator[LanguageText]:
    """The lines of a text file in one language, or the ``text`` and ``lang`` of JSON lines.

    Args:
        path: The file; a name ending in ``.jsonl`` means JSON lines.
        languages: Canonical codes: the language of a text file, or the languages of JSON lines to keep; empty for all.

    Raises:
        DataError: A line is malformed, or ``languages`` does not give exactly one language for a text file.
    """
    if path.suffix != ".jsonl":
        if len(languages) != 1:
            raise DataError(f"--texts {path}: give the language of its lines, just one, with --languages.")
        yield from ((line, languages[0]) for line in read_lines(path))
        return
    for text, language in read_records(path, "text and perhaps lang", _text):
        if not languages or language in languages:
            yield text, language


def _text(record: dict[str, Any]) -> LanguageText:
    return _string(record, "text"), canonical(_string(record, "lang")) if record.get("lang") else None


def corpus_texts(name: str, languages: Collection[str], rows: int | None) -> Iterator[LanguageText]:
    """Texts of a corpus in the chosen languages, by default all, except English. Raises DataError if it is missing."""
    corpus = corpora.load(name)
    for language in corpus.languages:
        if language != ENGLISH and (not languages or language in languages):
            yield from ((text, language) for text in corpus.texts(language)[:rows])


def training_texts(config: LiraConfig) -> list[LanguageText]:
    """The texts that both stages of a training translate. Raises DataError if a source is missing."""
    stages = foreign_texts(config.arca), rated(config.lasr), searches(config.lasr)
    texts, pairs, queries = ([*split.train, *split.held_out] for split in stages)
    texts += [text for row in (*pairs, *queries) for text in row[:2]]
    return [(text.text, text.lang) for text in texts if text.lang != ENGLISH]
