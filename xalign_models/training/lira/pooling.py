"""Pooling of token streams of any length to a fixed number of bins (eq. 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from xalign_models.training.lira.ranks import exact


def temporal_pool(tokens: Tensor, mask: Tensor, bins: int) -> Tensor:
    r"""Adaptive average pooling over a text's own tokens; padding on either side has no influence.

    Bin s averages tokens ``floor(s L / S)`` to ``ceil((s + 1) L / S) - 1`` of the L unmasked ones, as torch's
    ``adaptive_avg_pool1d`` does; with fewer tokens than bins some tokens are in several bins. Without tokens
    all bins are zero.

    Args:
        tokens: (b, l, d).
        mask: (b, l), true at tokens.
        bins: S.

    Returns:
        (b, S, d), float32 at least.
    """
    tokens, mask = exact(tokens), mask.bool()
    length = mask.sum(dim=1)[:, None]  # (b, 1)
    position = (mask.long().cumsum(dim=1) - 1)[:, None]  # (b, 1, l)
    s = torch.arange(bins, device=tokens.device)
    start = (s * length).div(bins, rounding_mode="floor")[..., None]  # (b, S, 1)
    end = -(-(s + 1) * length).div(bins, rounding_mode="floor")[..., None]
    inside = (position >= start) & (position < end) & mask[:, None]  # (b, S, l)
    weights = inside.to(tokens.dtype) / inside.sum(dim=-1, keepdim=True).clamp(min=1)
    clean = tokens.masked_fill(~mask[..., None], 0)  # a NaN at padding times a weight of zero would be a NaN
    with torch.autocast(tokens.device.type, enabled=False):
        return weights @ clean
