"""Texts given on the command line, as a file or a corpus."""

from collections.abc import Sequence
from pathlib import Path

from xalign_models.corpora.base import read_lines
from xalign_models.corpora.checks import check_rows
from xalign_models.corpora.registry import load
from xalign_models.errors import DataError, LanguageError
from xalign_models.identification import UNDETERMINED
from xalign_models.languages import canonical


def texts_of(name: str, languages: Sequence[str] | None = None, limit: int | None = None) -> dict[str, list[str]]:
    """The distinct texts of a file or corpus, by language.

    Args:
        name: A corpus, or a file with one text per line, whose name may tell the language (``deu.txt``).
        languages: Canonical codes of a corpus; None for all.
        limit: Maximum number of texts per language, from the top.

    Raises:
        DataError: The file or corpus does not exist or has no texts.
        LanguageError: The corpus does not have a language.
    """
    path = Path(name).expanduser()
    if path.is_file():
        try:
            language = canonical(path.stem)
        except LanguageError:
            language = UNDETERMINED
        sides = {language: read_lines(path)}
        check_rows(name, sides[language])
    else:
        corpus = load(name)
        sides = {language: corpus.texts(language) for language in languages or corpus.languages}
    texts = {
        language: list(dict.fromkeys(text for text in side if text.strip()))[:limit] for language, side in sides.items()
    }
    if not any(texts.values()):
        raise DataError(f"{name} has no texts.")
    return {language: side for language, side in texts.items() if side}
