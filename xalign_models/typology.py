"""Linguistic typology: families and syntactic features, from URIEL."""

import json
import logging
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models import assets
from xalign_models.errors import AssetError, LanguageError
from xalign_models.languages import display_name

logger = logging.getLogger(__name__)
_warn_once = cache(logger.warning)

_COMMON_NAMES = {
    "Italic": "Romance",
    "Graeco-Phrygian": "Greek",
    "Atlantic-Congo": "Niger-Congo",
    "Tai-Kadai": "Kra-Dai",
}


@cache
def load_uriel() -> dict[str, Any]:
    """URIEL's families and syntactic features, each by ISO 639-3 code."""
    path = assets.install("uriel") / "uriel.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def family(language: str) -> str:
    """The family of a language (canonical code), or its branch if Indo-European, or ``... (isolate)``.

    Raises:
        LanguageError: URIEL does not have the language.
        AssetError: URIEL is unavailable.
    """
    lineage: list[str] = _entry("families", language)
    if not lineage:
        return f"{display_name(language)} (isolate)"
    name = lineage[1] if lineage[0] == "Indo-European" and len(lineage) > 1 else lineage[0]
    return _COMMON_NAMES.get(name, name)


def syntax(languages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Syntactic features (n, 103), 0 or 1, of languages by canonical code; URIEL's ``syntax_knn``.

    Raises:
        LanguageError: URIEL does not have a language.
        AssetError: URIEL is unavailable.
    """
    return np.array([[float(bit) for bit in _entry("syntax", language)] for language in languages])


@cache
def nearest(language: str, known: tuple[str, ...]) -> str | None:
    """The known language with the longest lineage in common, of several the one with the most similar syntax.

    None if no known language is of its family, or URIEL does not have the language.
    """
    table, codes = load_uriel(), {code: code.split("-", maxsplit=1)[0] for code in (language, *known)}
    if codes[language] not in table["families"]:
        return None

    def likeness(other: str) -> tuple[int, int]:
        lines = (table["families"].get(codes[code], []) for code in (language, other))
        bits = (table["syntax"].get(codes[code], "") for code in (language, other))
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*lines, strict=False)))
        return shared, sum(a == b for a, b in zip(*bits, strict=False))

    same = [code for code in known if codes[code] == codes[language]]  # in another script
    best = max(same or known, key=likeness, default=None)
    return best if best is not None and (same or likeness(best)[0]) else None


def relative(language: str, known: tuple[str, ...]) -> str | None:
    """:func:`nearest`, or None with a warning if URIEL is unavailable: the mean of all maps serves then."""
    try:
        return nearest(language, known)
    except AssetError as error:
        _warn_once(f"{error} Languages that were not fitted get the mean of all maps.")
        return None


def _entry(table: str, language: str) -> Any:
    try:
        return load_uriel()[table][language.split("-", maxsplit=1)[0]]
    except KeyError:
        raise LanguageError(f"URIEL has no {language}; leave it out with --languages.") from None
