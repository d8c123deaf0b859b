"""A batch of texts of all lengths as parts of similar length, without their padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from xalign_models.backbones.batching import token_budget_batches

WORTH = 10**12
"""Weights times padded tokens below which an accelerator gains nothing from a part of its own: starting its kernels
takes as long as they do."""


def similar_lengths(features: dict[str, Any], model: nn.Module) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
    """Parts of a tokenised batch, each of rows of similar length, and none larger than the whole batch.

    A model that is sharded (FSDP) takes the batch as one part: each call gathers its layers from all processes, which
    must therefore make equally many, whatever texts they have.

    Args:
        features: With an ``attention_mask`` (b, s); tensors of its shape are divided, all else goes to every part.
        model: What they go through: on an accelerator, a small one gets fewer parts, with more padding.

    Yields:
        (rows, features of the part): indices of the rows, and the columns in which any of them has a token.
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
        yield (
            rows,
            {
                name: value[rows][:, columns] if torch.is_tensor(value) and value.shape == mask.shape else value
                for name, value in features.items()
            },
        )
