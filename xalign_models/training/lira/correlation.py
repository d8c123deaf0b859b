"""The loss on similarity data: one minus Pearson's and soft Spearman's correlation (eqs. 29 to 34)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from xalign_models.configuration import Count, Positive, configuration_class
from xalign_models.training.lira.ranks import Tau, average_ranks, exact, soft_ranks


@configuration_class
class CorrelationConfig:
    """Hyperparameters of the correlation loss.

    Attributes:
        alpha: Share of Pearson's term; the rest is soft Spearman's (eq. 34). The paper does not state it.
        tau: Temperature of the soft ranks, in the unit of cosines.
        epsilon: Added to both variances (eq. 31), which keeps the gradient finite if all predictions are equal.
        max_len: Maximum number of (prediction, score) pairs in the history; 0 is no history.
        n_min: Minimum number of pairs for a loss, batch and history together; fewer are only added to the history.
    """

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    tau: Tau = 0.1
    epsilon: Positive = 1e-6
    max_len: Count = 32
    n_min: Annotated[int, Field(ge=2)] = 8


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Eq. 29: inner products of the rows of two (n, d) of unit length, (n,), float32 at least."""
    return (exact(a) * exact(b)).sum(dim=-1)


def pearson(x: Tensor, y: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Eq. 31: ``cov / sqrt((var_x + eps) (var_y + eps))`` of two (n,), in float32 at least."""
    x, y = exact(x), exact(y)
    x, y = x - x.mean(), y - y.mean()
    covariance = (x * y).mean()
    result: Tensor = covariance / torch.sqrt((x.square().mean() + epsilon) * (y.square().mean() + epsilon))
    return result


def soft_spearman(predictions: Tensor, gold: Tensor, tau: float, epsilon: float = 1e-6) -> Tensor:
    """Eq. 33: Pearson's correlation of soft ranks with exact average-tie ranks."""
    return pearson(soft_ranks(predictions, tau), average_ranks(gold), epsilon)


def correlation_loss(predictions: Tensor, gold: Tensor, config: CorrelationConfig) -> Tensor:
    """Eq. 34: ``alpha (1 - rho) + (1 - alpha) (1 - rho_soft)`` of two (n,)."""
    linear = 1 - pearson(predictions, gold, config.epsilon)
    ranked = 1 - soft_spearman(predictions, gold, config.tau, config.epsilon)
    return config.alpha * linear + (1 - config.alpha) * ranked
