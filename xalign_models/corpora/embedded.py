"""The embedded corpora, which come from the package index."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from xalign_models import assets
from xalign_models.corpora.base import ENGLISH, Corpus, from_columns, read_lines, refuse_part
from xalign_models.errors import DataError

GETTEXT_LANGUAGES = tuple(
    "arb-Arab deu-Latn eng-Latn fra-Latn ind-Latn ita-Latn jpn-Jpan por-Latn rus-Cyrl spa-Latn tur-Latn "
    "zho-Hans".split()
)
"""The languages of the corpus ``gettext``, whose rows are translated into all of them."""


def gettext(part: str = "", *, path: Path | None = None, local: bool = False) -> Corpus:
    """The embedded corpus: Django's translated interface strings, one column per language, rows parallel.

    The parts ``fit`` and ``test`` are disjoint halves, by the hash of the English string; "" is the whole.

    Raises:
        DataError: Unknown part.
    """
    if part not in {"", "fit", "test"}:
        raise DataError(f"Unknown part {part!r} of the gettext corpus; parts are fit and test.")
    return _gettext(assets.install("gettext"), assets.fingerprint("gettext"), part)


@lru_cache(maxsize=8)
def _gettext(directory: Path, fingerprint: str, part: str) -> Corpus:
    records = [json.loads(line) for line in read_lines(directory / "corpus.jsonl")]
    records = [record for record in records if record.keys() >= set(GETTEXT_LANGUAGES)]
    records = [record for record in records if not part or _half(record[ENGLISH]) == part]
    columns = {language: [record[language] for record in records] for language in GETTEXT_LANGUAGES}
    trains = () if part == "fit" else ("GettextPrecision",)
    return from_columns("gettext", trains, columns, f"{fingerprint} {part}")


def kolibri(part: str = "", *, path: Path | None = None, local: bool = False) -> Corpus:
    """Kolibri's interface sentences, fit text: pairs of each of its languages with English."""
    refuse_part("kolibri", part)
    return _kolibri(assets.install("kolibri"), assets.fingerprint("kolibri"))


@lru_cache(maxsize=1)
def _kolibri(directory: Path, fingerprint: str) -> Corpus:
    records = [json.loads(line) for line in read_lines(directory / "corpus.jsonl")]
    languages = tuple(sorted({language for record in records for language in record} - {ENGLISH}))

    def rows(language: str) -> tuple[list[str], list[str]]:
        translated = [record for record in records if language in record]
        return [record[language] for record in translated], [record[ENGLISH] for record in translated]

    return Corpus("kolibri", "pairs", (), languages, rows, lambda _: fingerprint)


def _half(text: str) -> str:
    return "fit" if hashlib.sha256(text.encode()).digest()[0] % 2 else "test"
