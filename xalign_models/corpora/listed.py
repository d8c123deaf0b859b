"""Texts that a user names on the command line: a file of them, or a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xalign_models.corpora.base import read_lines
from xalign_models.corpora.registry import load
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import canonical

UNDETERMINED = "und"
"""Stands for the language of a file that does not say it."""


def texts_of(name: str, languages: Sequence[str] | None = None, limit: int | None = None) -> dict[str, list[str]]:
    """Distinct texts by language.

    Args:
        name: A text file with a text in each line, whose name may be its language (``deu.txt``), or a corpus.
        languages: Canonical codes of a corpus; None is all that it has.
        limit: Most texts of a language, from the top.

    Raises:
        DataError: There is no such file or corpus, or it has no texts.
        LanguageError: The corpus does not have a language.
    """
    path = Path(name).expanduser()
    if path.is_file():
        try:
            language = canonical(path.stem)
        except LanguageError:
            language = UNDETERMINED
        sides = {language: read_lines(path)}
    else:
        corpus = load(name)
        sides = {language: corpus.texts(language) for language in languages or corpus.languages}
    found = {
        language: list(dict.fromkeys(text for text in side if text.strip()))[:limit] for language, side in sides.items()
    }
    if not any(found.values()):
        raise DataError(f"{name} has no texts.")
    return {language: side for language, side in found.items() if side}
