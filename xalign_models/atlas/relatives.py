"""The most closely related language that has scores, by family and script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xalign_models.errors import AssetError, LanguageError
from xalign_models.typology import family

_SHARED = ("", "script", "family", "family and script", "language")


@dataclass(frozen=True)
class Relative:
    """A language that stands in for another.

    Attributes:
        language: Canonical code.
        shares: ``language`` (it has another script), ``family and script``, ``family`` or ``script``.
    """

    language: str
    shares: str


def nearest(language: str, known: Sequence[str]) -> Relative | None:
    """The language of ``known`` that is most closely related to ``language``.

    The same language in another script comes first, then the same family and script, the same family, the same script
    unless it is Latin. The first of several wins. Without URIEL's families, the script decides.

    Returns:
        None if no language shares family or script.
    """
    language_family = _family(language)

    def closeness(other: str) -> int:
        script = other[4:] == language[4:]
        if other[:3] == language[:3]:
            return 4
        if language_family is not None and language_family == _family(other):
            return 3 if script else 2
        return 1 if script and language[4:] != "Latn" else 0

    best = max(known, key=closeness, default=None)
    return Relative(best, _SHARED[closeness(best)]) if best is not None and closeness(best) else None


def _family(language: str) -> str | None:
    try:
        return family(language)
    except (LanguageError, AssetError):
        return None
