"""Families and syntax by canonical code."""

from __future__ import annotations

import pytest

from xalign_models.errors import LanguageError
from xalign_models.typology import family, syntax


def test_families(uriel):
    assert family("deu-Latn") == "Germanic"
    assert family("fra-Latn") == "Romance"  # URIEL calls it Italic
    assert family("tur-Latn") == "Turkic"
    assert family("eus-Latn") == "Basque (isolate)"


def test_syntax(uriel):
    uriel["syntax"] |= {"deu": "0110", "eng": "1100"}
    assert syntax(["eng-Latn", "deu-Latn"]).tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]


def test_unknown_languages_are_named(uriel):
    for ask in (family, lambda code: syntax([code])):
        with pytest.raises(LanguageError, match="URIEL has no ber-Latn"):
            ask("ber-Latn")


@pytest.mark.slow
def test_the_published_typology():
    """Needs the package index, or the asset in the cache."""
    assert family("deu-Latn") == family("eng-Latn") == "Germanic"
    assert family("rus-Cyrl") == "Balto-Slavic"
    english, german, japanese = syntax(["eng-Latn", "deu-Latn", "jpn-Jpan"])
    assert english @ german > english @ japanese
    assert len(english) == 103
