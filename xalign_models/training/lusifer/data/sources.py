"""Training sets by name, and rows to train on, without the texts of the available evaluation sets."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, read_lines
from xalign_models.errors import DataError, ModelError
from xalign_models.files import read_json
from xalign_models.paths import data_dir
from xalign_models.training.lusifer.data.base import HUB, LOCAL, TrainingRow, TrainingSource, draw

if TYPE_CHECKING:
    from xalign_models.training.lusifer.config import DataConfig

logger = logging.getLogger(__name__)

SHORTEST = 30
"""Minimum number of letters of a text to count as contained in an evaluation passage."""
_EVALUATED = ("flores", "ntrex", "tatoeba")


def squeeze(text: str) -> str:
    """Letters and digits in lower case: texts that differ only in spacing, case or punctuation become equal."""
    text = re.sub(r"-[lr][rsc]b-", "", text.casefold())
    return "".join(letter for letter in unicodedata.normalize("NFKC", text) if letter.isalnum())


@dataclass(frozen=True)
class EvaluationText:
    """The English text of evaluation sets, squeezed.

    Attributes:
        whole: All texts.
        passages: The longer passages in one string, to search for training texts of at least :data:`SHORTEST` letters.
        pairs: Pairs from evaluation sets whose training rows pair the same sentences differently.
    """

    whole: frozenset[str] = frozenset()
    passages: str = ""
    pairs: frozenset[frozenset[str]] = frozenset()

    def holds(self, text: str) -> bool:
        """Whether an evaluation set has the text or a passage that contains it."""
        squeezed = squeeze(text)
        return squeezed in self.whole or (len(squeezed) >= SHORTEST and squeezed in self.passages)

    def without(self, rows: Iterable[TrainingRow]) -> list[TrainingRow]:
        """The rows that share no text and no pair with the evaluation sets."""
        return [
            row
            for row in rows
            if not any(self.holds(text) for text in row) and frozenset(map(squeeze, row)) not in self.pairs
        ]


def evaluation_text() -> EvaluationText:
    """The text of the evaluation sets under ``$XALIGN_DATA``; missing sets are skipped."""
    texts: set[str] = set()
    for name in _EVALUATED:
        try:
            corpus = corpora.load(name, local=True)
            pairs = (corpus.pair(language)[1] for language in corpus.languages) if corpus.kind == "pairs" else ()
            texts.update(*pairs, corpus.texts(ENGLISH) if corpus.kind == "parallel" else ())
        except DataError as error:
            logger.debug("%s", error)
    passages = [text for path in _existing("lareqa/xquad-r/en.json") for text in _squad_texts(path)]
    for path in _existing("sts17/STS2017.eval.v1.1/*.txt"):
        texts.update(text for line in read_lines(path) for text in line.split("\t")[:2])
    compared = [row for path in _existing("stsbenchmark_en/sts-*.csv", "train") for row in _pairs(path, 5, 6)]
    compared += [row for path in _existing("sick_en/SICK_t*.txt", "train") for row in _pairs(path, 1, 2)]
    squeezed = frozenset(filter(None, map(squeeze, texts | set(passages))))
    pairs_of = frozenset(frozenset(map(squeeze, pair)) for pair in compared)
    return EvaluationText(squeezed, "\n".join(map(squeeze, passages)), pairs_of)


def _existing(pattern: str, but: str = "\0") -> list[Path]:
    root = data_dir()
    return [] if root is None else [path for path in sorted(root.glob(pattern)) if but not in path.name]


def _squad_texts(path: Path) -> Iterator[str]:
    for article in read_json(path)["data"]:
        for paragraph in article["paragraphs"]:
            yield paragraph["context"]
            yield from (question["question"] for question in paragraph["qas"])


def _pairs(path: Path, first: int, second: int) -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in read_lines(path)]
    return [(row[first], row[second]) for row in rows if len(row) > second]


SOURCES = {source.name: source for source in (*LOCAL, *HUB)}
"""Training sets by name."""
SPARE = 1.1
"""Ratio of rows read to rows wanted, because rows of evaluation sets are removed."""


def source(name: str) -> TrainingSource:
    """A training set by name.

    Raises:
        ModelError: The name is unknown.
    """
    if name not in SOURCES:
        raise ModelError(f"data: there is no training set {name!r}; choose from {', '.join(SOURCES)}.")
    return SOURCES[name]


def rows_of(data: DataConfig, evaluated: EvaluationText, seed: int) -> list[TrainingRow]:
    """Random rows to train on, without empty rows and without rows of evaluation sets.

    Raises:
        DataError: The training set is missing, or no row is left.
    """
    samples = data.samples
    read = source(data.source).read(None if samples is None else int(SPARE * samples) + 1, seed)
    full = [row for row in read if all(text.strip() for text in row)]
    clean = evaluated.without(full)
    if dropped := len(full) - len(clean):
        logger.info("%s: removed %d of %d rows that evaluation sets contain.", data.source, dropped, len(full))
    if not clean:
        raise DataError(
            f"Training set {data.source!r} has no row left: of {len(read)} rows, {len(read) - len(full)} are empty and "
            f"{dropped} are in evaluation sets. Remove it from the configuration."
        )
    if samples is not None and len(clean) < samples:
        logger.warning("%s has only %d of the %d rows asked for.", data.source, len(clean), samples)
    return draw(clean, samples, seed)
