"""Batches of texts of similar length under a token budget, and parts of a batch with less padding."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

SPREAD = 0.75
"""Minimum length of a batch's shortest text, as a share of its longest."""


def token_budget_batches(lengths: Sequence[int], budget: int, least: int = 0) -> Iterator[np.ndarray]:
    """Indices of texts, batch by batch, longest first.

    A batch of b texts whose longest has s tokens costs b * s padded tokens. It has as many texts as the budget allows
    with at most a quarter of padding, and at least one. The longest texts come first, so that a lack of memory shows
    early.

    Args:
        lengths: Tokens of each text.
        budget: Maximum number of padded tokens in a batch.
        least: Number of padded tokens up to which a batch is filled regardless of padding.

    Yields:
        (b,) int64 indices; together a permutation of ``range(len(lengths))``, stable among equal lengths.
    """
    descending = -np.asarray(lengths, dtype=np.int64)
    order = np.argsort(descending, kind="stable")
    descending = descending[order]
    start = 0
    while start < len(order):
        longest = -int(descending[start])
        similar = int(np.searchsorted(descending, -SPREAD * longest, side="right"))
        filled = max(similar, start + least // max(1, longest))
        end = max(start + 1, min(start + budget // max(1, longest), filled))
        yield order[start:end]
        start = end


def packed_batches(lengths: Sequence[int], budget: int) -> Iterator[np.ndarray]:
    """Indices of texts, batch by batch, longest first, for batches without padding.

    Args:
        lengths: Tokens of each text.
        budget: Maximum number of tokens in a batch; a longer text forms its own batch.

    Yields:
        (b,) int64 indices; together a permutation of ``range(len(lengths))``, stable among equal lengths.
    """
    array = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-array, kind="stable")
    ends = np.cumsum(array[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield order[start:end]
        start = end


WORTH = 10**13
"""Minimum product of weights and padded tokens for a part on an accelerator.

A smaller part takes less time to compute than its kernels take to start: about 40 ms for XLM-R-base with LoRA and
215 ms for Qwen3-Embedding-0.6B, on an NVIDIA H200 that computes 3e14 FLOP/s.
"""


def similar_lengths(features: dict[str, Any], model: nn.Module) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
    """Parts of a tokenised batch, each with rows of similar length and no larger than the whole batch.

    A sharded model (FSDP) takes the batch as one part: each call gathers layers from all processes, so that every
    process must make the same number of calls.

    Args:
        features: Features with an ``attention_mask`` (b, s). Tensors of its shape are split; every part gets the rest.
        model: The model; on an accelerator, a small one gets fewer parts with more padding.

    Yields:
        (rows, features of the part): indices of the rows, and their columns with at least one token.
    """
    mask = features["attention_mask"]
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        least = mask.numel()
    elif mask.device.type == "cpu":
        least = 0
    else:
        least = WORTH // sum(parameter.numel() for parameter in model.parameters())
    for group in token_budget_batches(mask.sum(dim=1).tolist(), mask.numel(), least):
        rows = torch.as_tensor(group, device=mask.device)
        columns = mask[rows].any(dim=0).nonzero()[:, 0]
        split = {name for name, value in features.items() if torch.is_tensor(value) and value.shape == mask.shape}
        yield rows, {**features, **{name: features[name][rows][:, columns] for name in split}}
