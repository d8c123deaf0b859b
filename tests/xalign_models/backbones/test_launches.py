"""What a packed forward asks of a GPU, counted on the meta device: launches, FLOPs, bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, BertConfig

from xalign_models.backbones import packing

from .operations import Operations

WIDTH, INNER, HEADS = 384, 1536, 12
"""multilingual-e5-small's."""
WEIGHTS = 4 * WIDTH**2 + 2 * WIDTH * INNER
"""Of a layer's linear layers."""
KERNELS = [(torch.float32, "efficient"), (torch.bfloat16, "flash")]
kernels = pytest.mark.parametrize(("dtype", "kernel"), KERNELS)
LENGTHS: list[list[int]] = [[7] * 4, [*range(5, 37)], sorted([*range(5, 37)] * 4)]
"""Of 4, 32 and 128 texts, with 1, 32 and 32 distinct ones."""


class Forward:
    """One batch through multilingual-e5-small's shape with some layers, and pooling; nothing is computed."""

    def __init__(
        self, modules: list[Any], lengths: list[int], layers: int, dtype: torch.dtype, kernel: packing.Kernel | None
    ) -> None:
        config = BertConfig(
            vocab_size=250_037, hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=HEADS,
            intermediate_size=INNER,
        )  # fmt: skip
        with torch.device("meta"):
            modules[0].model = AutoModel.from_config(config, dtype=dtype, add_pooling_layer=False).eval()
        features = features_of(lengths, kernel)
        self.operations, flops = Operations(), FlopCounterMode(display=False)
        with torch.no_grad(), flops, self.operations:
            vectors = modules[1](modules[0](features))["sentence_embedding"]
        assert (vectors.shape, vectors.dtype) == ((len(lengths), WIDTH), dtype)
        self.launches = len(self.operations.calls)
        self.bytes = self.operations.bytes
        self.flops = {str(operation): count for operation, count in flops.get_flop_counts()["Global"].items()}


def features_of(lengths: list[int], kernel: packing.Kernel | None) -> dict[str, Any]:
    """A pack of texts of these lengths, on the meta device."""
    features = packing.pack([np.arange(length) for length in lengths], kernel=kernel)
    return {name: value.to("meta") if torch.is_tensor(value) else value for name, value in features.items()}


@kernels
@pytest.mark.parametrize("layers", [3, 12])
def test_launches_depend_on_layers_alone(
    modules: list[Any], dtype: torch.dtype, kernel: packing.Kernel, layers: int
) -> None:
    counts = [Forward(modules, lengths, layers, dtype, kernel).launches for lengths in LENGTHS]
    assert len({*counts}) == 1
    assert counts[0] <= 12 * layers + (13 if dtype == torch.float32 else 15)


def test_without_a_kernel_they_grow_with_the_distinct_lengths(modules: list[Any]) -> None:
    first, second, _ = (Forward(modules, lengths, 3, torch.float32, None).launches for lengths in LENGTHS)
    assert second > first + 3 * 31 > 12 * 3 + 13


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("dtype", "kernel"), [*KERNELS, (torch.float32, None)])
def test_linear_layers_take_two_flops_a_weight_and_token(
    modules: list[Any], dtype: torch.dtype, kernel: packing.Kernel | None, lengths: list[int]
) -> None:
    flops = Forward(modules, lengths, 3, dtype, kernel).flops
    assert flops.pop("aten.addmm") == 2 * 3 * WEIGHTS * sum(lengths)
    padded = [max(lengths)] * len(lengths) if kernel else lengths  # the counter cannot read lengths on meta
    assert list(flops.values()) == [4 * 3 * WIDTH * sum(length**2 for length in padded)]


@kernels
def test_bytes_of_a_token_and_a_layer(modules: list[Any], dtype: torch.dtype, kernel: packing.Kernel) -> None:
    """Numbers that a token's way through a layer reads and writes, by hand."""
    linear = 4 * (WIDTH + WIDTH) + 2 * (WIDTH + INNER)
    attention = 4 * WIDTH
    gelu, sums, norms = 2 * INNER, 2 * 3 * WIDTH, 2 * 2 * WIDTH
    read = {(n, layers): Forward(modules, [9] * n, layers, dtype, kernel).bytes for n in (8, 24) for layers in (3, 12)}
    more = (read[24, 12] - read[8, 12]) - (read[24, 3] - read[8, 3])  # what 16 texts of 9 tokens add in 9 layers
    numbers = dtype.itemsize * (linear + attention + gelu + sums + norms)
    assert numbers <= more / (16 * 9 * 9) <= 1.02 * numbers  # means and deviations, logarithms of sums
    weights = dtype.itemsize * 9 * WEIGHTS
    assert weights <= read[8, 12] - read[8, 3] - 8 * 9 * more / (16 * 9) <= 1.02 * weights
