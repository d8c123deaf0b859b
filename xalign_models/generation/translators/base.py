"""The specification and the interface of a translator into English."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl

from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.generation.language_model import Completion
from xalign_models.generation.served import short_name
from xalign_models.specs import Dtype


class Kind(StrEnum):
    """The sources of translations."""

    LLM = "llm"
    """A prompted causal language model."""
    MT = "mt"
    """A sequence-to-sequence translation model."""
    REFERENCE = "reference"
    """The English side of parallel corpora, with names joined by ``+``: for training and testing the actor."""
    CORRUPTED = "corrupted"
    """References with a fault, from which the actor learns to recognise bad translations."""
    FILE = "file"
    """A file of JSON lines with ``text``, ``translation`` and, if languages share texts, ``lang``."""


_OPTIONS: dict[Kind, dict[str, type[int] | type[float]]] = {
    Kind.LLM: {"temperature": float, "seed": int, "shots": int, "extra": int},
    Kind.MT: {"beams": int},
    Kind.REFERENCE: {},
    Kind.CORRUPTED: {"seed": int},
    Kind.FILE: {"llm": int},
}


@dataclass(frozen=True)
class TranslatorSpec:
    """A translator as data, written ``kind:model`` or ``kind:model?option=value&option=value``.

    Attributes:
        kind: Source of the translations.
        model: Asset, directory, hub id or, for a served language model, ``openai:MODEL@http://host:8000/v1``; names of
            corpora; a file.
        options: (name, value): ``temperature``, ``seed``, ``shots`` and ``extra`` (tokens in addition to twice the
            text's, for a model that thinks first) of a language model, ``beams`` of a translation model, ``seed`` of
            corrupted references, ``llm=1`` of a file that a language model wrote.
    """

    kind: Kind
    model: str
    options: tuple[tuple[str, float | int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> TranslatorSpec:
        """The inverse of ``str``.

        Raises:
            ModelError: The kind or an option is unknown, or a value is not a number.
        """
        head, _, query = text.partition("?")
        kind, _, model = head.partition(":")
        if not model or kind not in tuple(Kind):
            raise ModelError(
                f"--translators {text!r}: write {', '.join(f'{kind}:NAME' for kind in Kind)}, "
                "e.g. llm:gemma-3-270m-q4, mt:facebook/m2m100_418M, reference:ntrex or file:translations.jsonl."
            )
        known, options = _OPTIONS[Kind(kind)], []
        for name, value in parse_qsl(query, keep_blank_values=True):
            try:
                options.append((name, known[name](value)))
            except (KeyError, ValueError):
                raise ModelError(
                    f"--translators {text!r}: option {name}={value} is not one of "
                    f"{', '.join(f'{name}=NUMBER' for name in known) or 'none'}."
                ) from None
        return cls(Kind(kind), model, tuple(sorted(options)))

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.options)
        return f"{self.kind}:{self.model}" + (f"?{query}" if query else "")

    @property
    def label(self) -> str:
        """A name for files and tables."""
        parts = [
            self.kind if self.kind in (Kind.REFERENCE, Kind.CORRUPTED) else "",
            short_name(self.model),
            *(f"{name}{value}" for name, value in self.options),
        ]
        return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts)))

    @property
    def is_llm(self) -> bool:
        """Whether it counts as a language model for pass@k."""
        return self.kind is Kind.LLM or dict(self.options).get("llm") == 1


class Translator(ABC):
    """Translates texts of one language into English.

    Args:
        spec: Specification of the translator.
        device: cpu, cuda or mps, for a model.
        dtype: Type of a model's weights and activations; None is the device's default.

    Attributes:
        instant: Whether it only looks up translations and needs no journal.
    """

    instant: bool = False

    def __init__(self, spec: TranslatorSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec, self.options = spec, dict(spec.options)
        self.device, self.dtype = device, dtype

    def knows(self, language: str | None) -> bool:
        """Whether it translates from a language, by canonical code (None: unknown)."""
        return True

    def release(self) -> None:
        """Free the memory of a model's weights, which are loaded again when needed."""
        if (model := self.__dict__.get("model")) is not None:
            model.release()

    @property
    @abstractmethod
    def identity(self) -> str:
        """Hex digits of weights or content, prompt and options, on which the output depends; not of the dtype."""

    @abstractmethod
    def translate(self, texts: Sequence[str], language: str | None) -> Sequence[Completion | ModelError]:
        """Raw output for each text; all are in one language, by canonical code (None: unknown).

        A served model returns an error for a text that it did not answer.
        """


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
_LOOP = re.compile(r"(?:^| )(\S+(?: \S+){0,7})(?: \1){5}$")
"""Six repetitions of up to eight words at the end of a text with single spaces."""
_ENOUGH = 10
"""A text with at least this many words must contain a common English word."""


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
    if not finished or _LOOP.search(" ".join(text.split())):
        return Cleaned(text, "endless")
    if language != ENGLISH and len(text.split()) > 3 and _plain(text) == _plain(source):
        return Cleaned(text, "untranslated")
    return Cleaned(text, "" if looks_english(text) else "not English")


def unwrap(written: str, source: str = "") -> str:
    """The text without thoughts, fences, "Sure, here is the translation:", polite closings and quotes around it."""
    answer = re.sub(r"<think>.*?(?:</think>|$)", "", written, flags=re.DOTALL)
    answer = answer.rpartition("</think>")[2]  # if the prompt itself opens the thought, as DeepSeek-R1's does
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
