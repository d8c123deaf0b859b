"""The specification and the interface of a translator into English."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl

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
    """The English side of parallel corpora, whose names are joined by ``+``: for training and tests of the actor."""
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
        """Free the memory of a model's weights, which are loaded again when they are needed."""
        if (model := self.__dict__.get("model")) is not None:
            model.release()

    @property
    @abstractmethod
    def identity(self) -> str:
        """Hex digits that identify everything that determines the output: weights or content, prompt, options."""

    @abstractmethod
    def translate(self, texts: Sequence[str], language: str | None) -> Sequence[Completion | ModelError]:
        """Raw output for each text; all are in one language, by canonical code (None: unknown).

        A served model gives an error for a text that it did not answer.
        """
