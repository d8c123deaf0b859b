"""Training pairs from a parallel corpus."""

from __future__ import annotations

from typing import NamedTuple

from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import DataError
from xalign_models.training.contrastive.config import ContrastiveConfig


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
        if config.pivot == ENGLISH:
            sides = corpus.pair(language)
        else:
            columns = corpus.parallel((language, config.pivot))
            sides = columns[language], columns[config.pivot]
        rows = [(one, other) for one, other in zip(*sides, strict=True) if one.strip() and other.strip()]
        if len(rows) < config.samples:
            raise DataError(
                f"--samples {config.samples}: corpus {corpus.name!r} has {len(rows)} rows of {language} with "
                f"{config.pivot}; ask for at most that many."
            )
        there = [(Text(one, language), Text(other, config.pivot)) for one, other in rows[: config.samples]]
        found += [(pivot, text) for text, pivot in there] + there
    return found
