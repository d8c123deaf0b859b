"""Removes wrappers from a translator's output, and detects invalid translations."""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from xalign_models.corpora import ENGLISH

_TOPIC = r"(?:english|translat\w*)"
_OPENING = re.compile(
    rf"""^\s*(?:
        (?:sure|of\ course|certainly|absolutely|okay|ok|yes|great)(?:\ thing)?[,.!:]\s*
            (?:\n|(?:(?:here|below|this|the)\b[^:\n]{{0,80}}:))
      | (?:here(?:\ is|'s|’s|\ are)|below\ is|this\ is|the\ following\ is)\b[^:\n]{{0,60}}\b{_TOPIC}\b[^:\n]{{0,40}}:
      | (?:the\ )?(?:english\ )?(?:translation|translated\ \w+)(?:\ (?:in|into|to)\ english)?(?:\ is)?\s*:
      | english\s*:
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_CLOSING = re.compile(
    r"""(?:\n|(?<=[.!?"”'’]))\s*(?:
        (?:if\ you\ (?:need|have|want|would\ like)\ (?:any|more|further|other|me\ to)|
        (?:please\ )?let\ me\ know\ if\ you|(?:please\ )?feel\ free\ to\ ask|i\ hope\ (?:this|that|it)\ helps|
        i(?:'m|’m|\ am)\ (?:glad|happy)\ to\ help|
        (?:is\ there|do\ you\ need)\ anything\ else)\b[^\n]{0,160}
      | \(?(?:translator's\ )?note\s*:[^\n]*
    )\s*$""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTES = {'"': '"', "“": "”", "'": "'", "‘": "’", "«": "»", "``": "''", "`": "`", "„": "“"}
_COMMON = frozenset(
    "the a an of to in and is was for on with that it he she they we you i are be as at by from this not or have has "
    "had but will can his her their our your its were been which who what there more all one".split()
)
_ENOUGH = 10
"""Number of words from which on a text must contain a common English word."""


class Cleaned(NamedTuple):
    """A translation, and its problem: empty, endless, untranslated or not English; "" if valid."""

    text: str
    problem: str


def clean(written: str, source: str, language: str | None, *, finished: bool = True) -> Cleaned:
    """Remove wrappers from a translator's output and check the rest.

    Args:
        written: The output.
        source: The text to translate.
        language: Canonical code of the source; None if unknown.
        finished: Whether the translator stopped before its limit of tokens.
    """
    text = unwrap(written, source)
    if not text:
        return Cleaned("", "empty")
    if not finished or _loops(text):
        return Cleaned(text, "endless")
    if language != ENGLISH and len(text.split()) > 3 and _plain(text) == _plain(source):
        return Cleaned(text, "untranslated")
    return Cleaned(text, "" if looks_english(text) else "not English")


def unwrap(written: str, source: str = "") -> str:
    """The text without thoughts, fences, "Sure, here is the translation:", polite closings and quotes around it."""
    answer = re.sub(r"<think>.*?(?:</think>|$)", "", written, flags=re.DOTALL)
    answer = answer.rpartition("</think>")[2]  # where the prompt itself opens the thought, as DeepSeek-R1's does
    text = re.sub(r"^\s*```\w*\n?|\n?```\s*$", "", answer).strip()
    while (opening := _OPENING.match(text)) and not _OPENING.match(source):
        text = text[opening.end() :].strip()
    while (closing := _CLOSING.search(text)) and not _CLOSING.search(source):
        text = text[: closing.start()].strip()
    for first, last in _QUOTES.items():
        inside = text[len(first) : len(text) - len(last)]
        if text.startswith(first) and text.endswith(last) and len(text) >= len(first + last) and last not in inside:
            quoted = source.strip()[:1] in {*_QUOTES, *_QUOTES.values()} and source.strip() != ""
            text = text if quoted else inside.strip()
            break
    return text


def looks_english(text: str) -> bool:
    """Whether most letters are Latin and a longer text has a common English word."""
    letters = [char for char in text if char.isalpha()]
    if letters and sum(map(_is_latin, letters)) < len(letters) / 2:
        return False
    words = re.findall(r"[^\W\d_]+", text.lower())
    return len(words) < _ENOUGH or not _COMMON.isdisjoint(words)


@lru_cache(maxsize=8192)
def _is_latin(char: str) -> bool:
    return unicodedata.name(char, "").startswith(("LATIN", "FULLWIDTH LATIN"))


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _loops(text: str) -> bool:
    """Whether the text ends in six repetitions of up to eight words."""
    words = text.split()
    return any(
        len(words) >= 6 * size and len({tuple(words[-(i + 1) * size : len(words) - i * size]) for i in range(6)}) == 1
        for size in range(1, 9)
    )
