"""Splits a batch of texts of all lengths into parts of similar length, with less padding."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from xalign_models.backbones.batching import token_budget_batches

WORTH = 10**12
"""Minimum of weights times padded tokens for a part on an accelerator: a smaller part takes less time to compute than
its kernels take to start."""


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
