"""Differentiable and exact ranks (eqs. 32 and 36), and the loss on similarity data (eqs. 29 to 34)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from xalign_models.configuration import Count, Positive, configuration_class
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
        raise ModelError(f"tau {tau}: use at least {LEAST_TAU:g}; smaller values overflow in float32.")
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


@configuration_class
class CorrelationConfig:
    """Hyperparameters of the correlation loss.

    Attributes:
        alpha: Share of the Pearson term; the rest is soft Spearman (eq. 34). The paper does not state it.
        tau: Temperature of the soft ranks, in the unit of cosines.
        epsilon: Added to both variances (eq. 31), which keeps the gradient finite if all predictions are equal.
        max_len: Maximum number of (prediction, score) pairs in the history; 0 means no history.
        n_min: Minimum number of pairs for a loss, batch and history together; fewer are only added to the history.
    """

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    tau: Tau = 0.1
    epsilon: Positive = 1e-6
    max_len: Count = 32
    n_min: Annotated[int, Field(ge=2)] = 8


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Eq. 29: inner products (n,) of the unit rows of two (n, d), at least float32."""
    return (exact(a) * exact(b)).sum(dim=-1)


def pearson(x: Tensor, y: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Eq. 31: ``cov / sqrt((var_x + eps) (var_y + eps))`` of two (n,), in float32 at least."""
    x, y = exact(x), exact(y)
    x, y = x - x.mean(), y - y.mean()
    covariance = (x * y).mean()
    return covariance / torch.sqrt((x.square().mean() + epsilon) * (y.square().mean() + epsilon))


def soft_spearman(predictions: Tensor, gold: Tensor, tau: float, epsilon: float = 1e-6) -> Tensor:
    """Eq. 33: Pearson's correlation of soft ranks with exact average-tie ranks."""
    return pearson(soft_ranks(predictions, tau), average_ranks(gold), epsilon)


def correlation_loss(predictions: Tensor, gold: Tensor, config: CorrelationConfig) -> Tensor:
    """Eq. 34: ``alpha (1 - rho) + (1 - alpha) (1 - rho_soft)`` of two (n,)."""
    linear = 1 - pearson(predictions, gold, config.epsilon)
    ranked = 1 - soft_spearman(predictions, gold, config.tau, config.epsilon)
    return config.alpha * linear + (1 - config.alpha) * ranked
