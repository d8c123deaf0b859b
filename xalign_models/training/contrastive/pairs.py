"""Training pairs from a parallel corpus."""

from __future__ import annotations

from typing import NamedTuple

from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import DataError
from xalign_models.training.contrastive.config import ContrastiveConfig

MEASURED = 128
"""Most pairs that are measured on."""


class Text(NamedTuple):
    """A text and its language's canonical code."""

    text: str
    lang: str


def training_pairs(corpus: Corpus, config: ContrastiveConfig) -> list[tuple[Text, Text]]:
    """(anchor, positive) for each language: pivot to language, then language to pivot, over the first rows.

    With Arabic and Spanish: EN-AR, AR-EN, EN-ES, ES-EN, ``4 * samples`` pairs. As both directions are there, every
    language is also among the negatives. Rows with an empty side do not count.

    Raises:
        DataError: The corpus has fewer rows; the message says how many. Or it has no translations.
        LanguageError: It does not have the language.
    """
    found: list[tuple[Text, Text]] = []
    for language in config.languages:
        rows = _rows(corpus, language, config.pivot)
        if len(rows) < config.samples:
            raise DataError(
                f"--samples {config.samples}: corpus {corpus.name!r} has {len(rows)} rows of {language} with "
                f"{config.pivot}; ask for at most that many."
            )
        there = rows[: config.samples]
        found += [(pivot, text) for text, pivot in there] + there
    return found


def held_out_pairs(corpus: Corpus, config: ContrastiveConfig) -> list[tuple[Text, Text]]:
    """(text, pivot) of the rows that follow those of the training, evenly from all languages; fewer if there are not.

    A row with a text that is trained on is none of them.
    """
    pairs: list[tuple[Text, Text]] = []
    for language in config.languages:
        rows = _rows(corpus, language, config.pivot)
        known = {text for row in rows[: config.samples] for text in row}
        later = [row for row in rows[config.samples :] if not known & {*row}]
        pairs += later[: MEASURED // len(config.languages)]
    return pairs


def _rows(corpus: Corpus, language: str, pivot: str) -> list[tuple[Text, Text]]:
    if pivot == ENGLISH:
        sides = corpus.pair(language)
    else:
        columns = corpus.parallel((language, pivot))
        sides = columns[language], columns[pivot]
    rows = zip(*sides, strict=True)
    return [(Text(text, language), Text(other, pivot)) for text, other in rows if text.strip() and other.strip()]
