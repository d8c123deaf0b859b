"""Linguistic typology: families and syntactic features, from URIEL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models import assets
from xalign_models.errors import LanguageError
from xalign_models.languages import display_name

_COMMON_NAMES = {
    "Italic": "Romance",
    "Graeco-Phrygian": "Greek",
    "Atlantic-Congo": "Niger-Congo",
    "Tai-Kadai": "Kra-Dai",
}


@cache
def load_uriel() -> dict[str, Any]:
    """URIEL's families and syntactic features, each by ISO 639-3 code.

    Raises:
        AssetError: URIEL is unavailable.
    """
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


def _entry(table: str, language: str) -> Any:
    try:
        return load_uriel()[table][language.split("-", maxsplit=1)[0]]
    except KeyError:
        raise LanguageError(f"URIEL has no {language}; leave it out with --languages.") from None
