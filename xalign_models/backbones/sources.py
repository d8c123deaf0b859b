"""Backbones that are no checkpoint: what stands before the colon of ``model`` says who gives the vectors.

``openai:text-embedding-3-small`` is a model behind a server, for one. A source is registered like everything else, by a
plug-in too: ``register.source("mine", "module:Class")``.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from xalign_models.errors import ModelError
from xalign_models.plugins import SOURCES
from xalign_models.specs import BackboneSpec

if TYPE_CHECKING:
    from torch import nn


class Source(ABC):
    """Who gives the vectors of a backbone. Making one opens nothing: no file, no network.

    Args:
        model: The backbone's ``model``, scheme and colon included.

    Attributes:
        named: Whether the user named it in this process; a directory or a result that names it is no such word.
    """

    settable: frozenset[str] = frozenset({"name", "model", "prompts", "mteb_name", "truncate_dim", "vectors"})
    """Fields of a BackboneSpec that mean something to it."""
    normalises: bool = True
    """Whether vectors that are not aligned are brought to unit length, as those of checkpoints are."""
    mteb_name: str | None = None
    """The mteb model whose metadata holds for it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.named = False

    @property
    def name(self) -> str:
        """What names of models are made of."""
        return self.model

    @abstractmethod
    def fingerprint(self) -> str:
        """What, beside the spec, determines the raw vector of a prompted text.

        Raises:
            ModelError: It cannot be had, or is not what it was.
        """

    @abstractmethod
    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """The modules that give raw vectors; a first one with ``stream(texts, prompt)`` makes its own batches.

        Raises:
            ModelError: It cannot be had.
        """

    context: Callable[[Any, Any, str, str], str] | None = None
    """Names what a task's texts are encoded in, from mteb's metadata, prompt type, split and subset; ``stream`` gets
    the name in place of a prompt. None where prompts are all there is."""

    def prompts(self) -> Mapping[str, str]:
        """The prompts that it brings along, by key."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Fields of mteb's ModelMeta that are known of it."""
        return {}


@cache
def find_source(model: str) -> Source | None:
    """The source that a backbone's ``model`` names; None for an asset, a directory or a hub id.

    Raises:
        ModelError: What follows the colon is malformed.
    """
    scheme, colon, _ = model.partition(":")
    return SOURCES[scheme](model) if colon and scheme in SOURCES else None


def check_fields(source: Source, spec: BackboneSpec) -> None:
    """Refuse fields of a spec that mean nothing to its source.

    Raises:
        ModelError: One is set; the message names its flag.
    """
    for field in dataclasses.fields(spec):
        if field.name not in source.settable and getattr(spec, field.name) != field.default:
            flag = f"--{field.name.replace('_', '-')}"
            raise ModelError(f"{flag} does not apply to {source.model}, which is no checkpoint here; leave it out.")
