"""Differentiable ranks (eqs. 32 and 36), and exact ranks for labels."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from xalign_models.errors import ModelError

LEAST_TAU = 1e-4
"""Smallest temperature: a smaller one overflows float32 at ties of denormal scores."""
Tau = Annotated[float, Field(ge=LEAST_TAU)]


def exact(x: Tensor) -> Tensor:
    """``x`` in float32 at least, if the model computes in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def soft_ranks(
    scores: Tensor, tau: float, *, descending: bool = False, mask: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    r"""Differentiable ranks, starting from 1; ties share the average rank; ``tau`` -> 0 gives the exact ranks.

    Eq. 32, ascending: ``r_i = 1 + sum_{j != i} sigma((s_i - s_j) / tau)``. Eq. 36, descending:
    ``r_i = 1 + sum_{j != i} w_j sigma((s_j - s_i) / tau)``.

    Args:
        scores: (..., n).
        tau: Temperature, in the unit of the scores.
        descending: Whether rank 1 is the largest score.
        mask: (..., n), false at padding; the rank of padding is undefined.
        weights: (..., n), weight of each score in the ranks of the others.

    Returns:
        (..., n), float32 at least.

    Raises:
        ModelError: ``tau`` is too small.
    """
    if not tau >= LEAST_TAU:
        raise ModelError(f"tau {tau}: at least {LEAST_TAU:g}; smaller ones are not finite in float32.")
    scores = exact(scores)
    behind = torch.sigmoid((scores[..., :, None] - scores[..., None, :]) / tau)  # (i, j): how far i is above j
    if descending:
        behind = behind.transpose(-1, -2)
    off_diagonal = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    counted = off_diagonal if mask is None else off_diagonal & mask.bool()[..., None, :]
    pushes = counted.to(scores.dtype) if weights is None else counted * exact(weights)[..., None, :]
    return 1 + (behind * pushes).sum(dim=-1)


def average_ranks(labels: Tensor) -> Tensor:
    """Exact ascending ranks from 1, ties averaged: (n,) -> (n,), float32 at least, without a gradient."""
    labels = exact(labels.detach())
    below = (labels[:, None] > labels[None]).sum(dim=1)
    equal = (labels[:, None] == labels[None]).sum(dim=1)
    return (below + (equal + 1) / 2).to(labels.dtype)
