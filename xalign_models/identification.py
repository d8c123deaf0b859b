"""Detects the language of texts among given languages, with a probability."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NamedTuple

from xalign_models.errors import LanguageError
from xalign_models.languages import canonical, match

UNDETERMINED = "und"
"""ISO 639-3 code of an undetermined language: that of doubtful texts, such as numbers."""
LEAST_CONFIDENCE = 0.6
"""Minimum probability of a language, among the given ones, below which a text is doubtful."""


class Found(NamedTuple):
    """The language of a text, or :data:`UNDETERMINED`, and the probability of the likeliest language."""

    language: str
    confidence: float


class Unidentified(str):
    """The code ``auto`` of a text; a later module detects its language among those that it knows."""

    text: str

    @classmethod
    def of(cls, text: str) -> Unidentified:
        """The code ``auto`` with its text."""
        code = cls("auto")
        code.text = text
        return code


def identify(texts: Sequence[str], among: Sequence[str]) -> list[Found]:
    """The language of each text among given ones, by py3langid.

    Args:
        texts: Texts of any length, numbers and empty ones included.
        among: Canonical codes; a language that py3langid lacks is never found.

    Returns:
        For each text, one of ``among`` and its probability; :data:`UNDETERMINED` if that is below
        :data:`LEAST_CONFIDENCE`.

    Examples:
        >>> from xalign_models.identification import identify
        >>> [found.language for found in identify(["Das ist ein Satz.", "1,200"], ["deu-Latn", "eng-Latn"])]
        ['deu-Latn', 'und']
    """
    identifier, languages = _identifier(tuple(among))
    distinct = {text: identifier.classify(text) for text in dict.fromkeys(texts)} if languages else {}
    found = (distinct.get(text, (None, 0.0)) for text in texts)
    return [Found(languages[label] if sure >= LEAST_CONFIDENCE else UNDETERMINED, sure) for label, sure in found]


@cache
def identifiable() -> tuple[str, ...]:
    """Canonical codes of all languages that py3langid knows."""
    codes = []
    for label in _whole().labels:
        with suppress(LanguageError):
            codes.append(canonical(label))
    return tuple(dict.fromkeys(codes))


@lru_cache(maxsize=16)
def _identifier(among: tuple[str, ...]) -> tuple[Any, dict[str | None, str]]:
    """Py3langid restricted to some languages, and the code of each of its labels."""
    languages: dict[str | None, str] = {}
    for label in _whole().labels:
        with suppress(LanguageError):
            if (code := match(label, among)) in among:
                languages[label] = code
    restricted = copy.copy(_whole())  # shares the tables
    restricted.set_languages([*languages])
    return restricted, languages


@cache
def _whole() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise LanguageError(
            'Some texts have no language. Name it, or let py3langid detect it: pip install "xalign[langid]".'
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
