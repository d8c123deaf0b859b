"""Sources of a backbone's raw vectors: a checkpoint, or the source named by a scheme such as ``openai:``.

Plug-ins add sources: ``register.source("mine", "module:Class")``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from xalign_models.claims import Claim, named
from xalign_models.errors import ModelError
from xalign_models.plugins import SOURCES
from xalign_models.specs import BackboneSpec

if TYPE_CHECKING:
    from torch import nn


class Source(ABC):
    """A provider of a backbone's vectors. Creating one opens no file and no connection.

    Args:
        model: The backbone's ``model``, scheme and colon included.
    """

    settable: frozenset[str] = frozenset({"name", "model", "prompts", "mteb_name", "truncate_dim", "vectors"})
    """Fields of a BackboneSpec that apply to the source."""
    normalises: bool = True
    """Whether unaligned vectors are scaled to unit length, as for checkpoints."""
    has_weights: bool = False
    """Whether its modules have weights, which can be saved and put on several devices."""
    mteb_name: str | None = None
    """The mteb model whose metadata describes it."""
    context: Callable[[Any, Any, str, str], str] | None = None
    """Names the context of a task's texts, from mteb's metadata, prompt type, split and subset. ``stream`` gets the
    name in place of a prompt. None for sources that need a prompt only."""

    def __init__(self, model: str) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """Its part in the names of models."""
        return self.model

    @abstractmethod
    def fingerprint(self) -> str:
        """Identity of the source: with the spec, it determines the raw vector of a prompted text.

        Raises:
            ModelError: The source is unavailable, or has changed.
        """

    @abstractmethod
    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """The modules that give raw vectors; a first module with ``stream(texts, prompt)`` makes its own batches.

        Raises:
            ModelError: The source is unavailable.
        """

    def confirm(self, fingerprint: str) -> None:
        """Refuse the source if it no longer matches its fingerprint: after loading, and before vectors are stored.

        Raises:
            ModelError: It has changed.
        """
        if self.fingerprint() != fingerprint:
            raise ModelError(
                f"{self.model} changed while it was in use; its vectors are not stored. Run the command again."
            )

    def prompts(self) -> Mapping[str, str]:
        """The source's own prompts, by key."""
        return {}

    def sides(self) -> frozenset[str]:
        """The sides, ``query`` or ``document``, that it encodes differently from texts without a side."""
        return frozenset()

    def facts(self) -> Mapping[str, Any]:
        """Known fields of mteb's ModelMeta."""
        return {}


@lru_cache(maxsize=None, typed=True)
def find_source(model: str) -> Source | None:
    """The source that the scheme of a backbone's ``model`` names; None for a checkpoint.

    Raises:
        ModelError: The text after the colon is malformed, or the source is named only in a file.
    """
    scheme, colon, _ = model.partition(":")
    if not colon or scheme not in SOURCES:
        return None
    word = named(model)
    return find_source(word) if isinstance(model, Claim) else SOURCES[scheme](word)
