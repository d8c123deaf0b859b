"""Plans trainings before anything is loaded: sizes are counted on torch's meta device.

Times and memory are upper estimates for one H100: each text has as many tokens as the configuration allows.
"""

import math
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Self

import torch
from transformers import AutoConfig, AutoModel

from xalign_models import assets
from xalign_models.backbones.checkpoint import open_config
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Dtype

FLOPS, BANDWIDTH, MEMORY = 0.4 * 989e12, 0.5 * 3.35e12, 80e9
"""An H100: 40% of its peak in bfloat16 and 50% of its memory's peak, per second; bytes."""
MOST_HOURS, MOST_DEVICES = 168.0, 8
"""Limits of a plan: a week on one device, and the memory of eight devices."""
BIG = 1_000_000_000
"""Checkpoints with at least this many parameters load frozen weights in bfloat16."""
TRAINED, ACTIVATIONS, KEPT = 16, 34, 2
"""Bytes: per trained weight with its gradient and Adam's moments; per token, layer and dimension, with all
activations, and with only the activations between layers."""


class Size(NamedTuple):
    """Size of a checkpoint without its head: parameters, token embedding parameters, layers, width, vocabulary."""

    parameters: int
    table: int
    layers: int
    width: int
    vocabulary: int

    def flops(self, tokens: float, passes: float = 1) -> float:
        """Operations of passes over tokens; the backward pass to the activations counts as one."""
        return 2 * (self.parameters - self.table) * tokens * passes

    def activations(self, tokens: float, *, checkpointing: bool = False) -> float:
        """Bytes that a forward pass over tokens keeps."""
        layers = self.layers * KEPT + ACTIVATIONS if checkpointing else self.layers * ACTIVATIONS
        return tokens * self.width * layers


class Row(NamedTuple):
    """A part of a plan: its number of steps or texts, seconds for each, gigabytes of memory, and total hours."""

    part: str
    number: int
    seconds: float | None
    gigabytes: float
    hours: float

    @classmethod
    def of(cls, part: str, count: int, seconds: float, memory: float) -> Self:
        """A row, with memory in bytes."""
        return cls(part, count, round(seconds, 3), round(memory / 1e9, 1), round(count * seconds / 3600, 2))


@cache
def size_of(model: str, revision: str | None = None, *, encoder: bool = False) -> Size:
    """The size of a checkpoint, by asset name, directory or hub id; with ``encoder``, of an encoder-decoder's encoder.

    Raises AssetError if it is unavailable.
    """
    shapes = tomllib.loads(files(__package__).joinpath("shapes.toml").read_text(encoding="utf-8"))
    fields: dict[str, Any] | None = shapes.get(model)
    config = AutoConfig.for_model(**fields) if fields else open_config(assets.resolve(model, revision))
    with torch.device("meta"):
        whole: Any = AutoModel.from_config(config)
    whole = whole.get_encoder() if encoder and config.is_encoder_decoder else whole
    table = whole.get_input_embeddings().weight
    layers = int(getattr(config, "num_hidden_layers", 0))
    return Size(sum(weight.numel() for weight in whole.parameters()), table.numel(), layers, *reversed(table.shape))


def frozen_dtype(spec: BackboneSpec, asked: Dtype | None = None) -> Dtype:
    """The type of frozen weights: the given one, else bfloat16 for a large checkpoint, else the backbone's own."""
    if asked is None and spec.dtype is Dtype.FLOAT32 and size_of(spec.model, spec.revision).parameters >= BIG:
        return Dtype.BFLOAT16
    return asked or spec.dtype


def writing(part: str, model: str, texts: int, tokens: int, batch: int = 16) -> Row:
    """The row of a language model that writes tokens for each text; each token reads all weights from memory."""
    size = size_of(model)
    weights = 2.0 * size.parameters
    seconds = tokens * max(weights / BANDWIDTH, size.flops(batch) / FLOPS) / batch
    return Row.of(part, texts, seconds, weights)


def checked(rows: Sequence[Row]) -> list[Row]:
    """The rows and their total.

    Raises:
        ModelError: The plan needs more than :data:`MOST_HOURS` or the memory of more than :data:`MOST_DEVICES`.
    """
    hours, memory = sum(row.hours for row in rows), max(row.gigabytes for row in rows)
    devices = max(1, math.ceil(1e9 * memory / MEMORY))
    if hours > MOST_HOURS or devices > MOST_DEVICES:
        worst = max(rows, key=lambda row: row.hours if hours > MOST_HOURS else row.gigabytes)
        raise ModelError(
            f"This plan takes {hours:,.0f} hours of an H100 and the memory of {devices}, most of it for {worst.part} "
            f"({worst.number:,} times {worst.seconds:,.1f} s, {worst.gigabytes:,.0f} GB); train on fewer rows, "
            "with a smaller mini_batch, or with smaller models."
        )
    return [*rows, Row(f"total, {devices} H100", sum(row.number for row in rows), None, memory, round(hours, 2))]
