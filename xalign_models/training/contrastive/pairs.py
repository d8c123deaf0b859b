"""Training pairs from a parallel corpus."""

from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import DataError
from xalign_models.languages import TaggedText
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.instruments import MEASURED


def training_pairs(corpus: Corpus, config: ContrastiveConfig) -> list[tuple[TaggedText, TaggedText]]:
    """(anchor, positive) for each language: pivot to language, then language to pivot, over the first rows.

    Arabic and Spanish give EN-AR, AR-EN, EN-ES and ES-EN, ``4 * samples`` pairs. Both directions are used, so that
    every language occurs among the negatives. Rows with an empty side are skipped.

    Raises:
        DataError: The corpus has no translations, or too few rows.
        LanguageError: The corpus does not have the language.
    """
    pairs: list[tuple[TaggedText, TaggedText]] = []
    for language in config.languages:
        rows = _rows(corpus, language, config.pivot)
        if len(rows) < config.samples:
            raise DataError(
                f"samples {config.samples}: corpus {corpus.name!r} has {len(rows)} rows of {language} with "
                f"{config.pivot}; ask for at most that many."
            )
        subset = rows[: config.samples]
        pairs += [(pivot, text) for text, pivot in subset] + subset
    return pairs


def held_out_pairs(corpus: Corpus, config: ContrastiveConfig) -> list[tuple[TaggedText, TaggedText]]:
    """(text, pivot) of the rows after the training rows, as many of each language as the corpus allows.

    Rows that share a text with a training row are left out.
    """
    pairs: list[tuple[TaggedText, TaggedText]] = []
    for language in config.languages:
        rows = _rows(corpus, language, config.pivot)
        trained = {text for row in rows[: config.samples] for text in row}
        later = [row for row in rows[config.samples :] if not trained & {*row}]
        pairs += later[: MEASURED // len(config.languages)]
    return pairs


def _rows(corpus: Corpus, language: str, pivot: str) -> list[tuple[TaggedText, TaggedText]]:
    if pivot == ENGLISH:
        sides = corpus.pair(language)
    else:
        columns = corpus.parallel((language, pivot))
        sides = columns[language], columns[pivot]
    rows = zip(*sides, strict=True)
    return [(TaggedText(a, language), TaggedText(b, pivot)) for a, b in rows if a.strip() and b.strip()]
