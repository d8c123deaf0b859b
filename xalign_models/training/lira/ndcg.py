"""The loss on retrieval data: soft nDCG@k with safe negatives, a top-1 hinge, and control of mean and variance."""

import math
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from xalign_models.configuration import AtLeastOne, Count, NonNegative, configuration_class
from xalign_models.errors import ModelError
from xalign_models.training.lira.ranks import Tau, exact, soft_ranks


@configuration_class
class RetrievalConfig:
    """Hyperparameters of the retrieval loss; the paper states no constants, so these are ours.

    Attributes:
        k: Depth of nDCG.
        tau: Temperature of the soft ranks, in the unit of cosines.
        tau_k: Softness of the cut at k, in ranks; None is k / 2.
        margin: Margin of the hinge.
        hinge_weight: Weight of eq. 42 in eq. 44.
        moments_weight: Weight of eq. 43 in eq. 44.
        variance: Target variance of the scores of a query's candidates.
        gap: A negative counts as near, and may be an unlabelled positive, if it scores within this gap of the best
            positive (eq. 40)
        threshold: and at least this much. None is the 95th percentile of recent positives.
        temperature: Decay of the weight of near negatives with their score.
        floor: The smallest weight.
        drop: Whether near negatives get no weight, as in the paper's other variant.
        mined: Maximum number of negatives per query from the queue.
        max_len: Documents per language in the queue; 0 means no queue.
    """

    k: AtLeastOne = 10
    tau: Tau = 0.1
    tau_k: Tau | None = None
    margin: NonNegative = 0.1
    hinge_weight: NonNegative = 0.5
    moments_weight: NonNegative = 0.01
    variance: NonNegative = 0.04
    gap: NonNegative = 0.05
    threshold: Annotated[float, Field(allow_inf_nan=True)] | None = None
    temperature: Tau = 0.05
    floor: Annotated[float, Field(gt=0, le=1)] = 0.05
    drop: bool = False
    mined: Count = 31
    max_len: Count = 256

    def __post_init__(self) -> None:
        if self.threshold is not None and math.isnan(self.threshold):
            raise ModelError("lasr.loss.threshold nan: give a number, or null for the 95th percentile.")


class RetrievalTerms(NamedTuple):
    """The parts of eq. 44, as means over the queries with a positive."""

    loss: Tensor
    ndcg: Tensor
    hinge: Tensor
    moments: Tensor
    near: Tensor
    """Near negatives per query."""


def soft_ndcg(
    scores: Tensor, relevance: Tensor, mask: Tensor, *, k: int, tau: float, tau_k: float, weights: Tensor | None = None
) -> Tensor:
    r"""Eqs. 36 to 38: ``DCG = sum G D(r) M(r)``, divided by the ideal order's; 0 without a positive.

    ``G = 2^rel - 1``, ``D(r) = 1 / log2(1 + r)``, ``M(r) = sigma((k + 1/2 - r) / tau_k)``. The ideal list has the same
    soft cut, so that a perfect ranking scores 1 at any ``tau_k``. With more than k tied positives the result may exceed
    1.

    Args:
        scores: (b, n) of b queries' candidates.
        relevance: (b, n), 0 is not relevant.
        mask: (b, n), false at padding.
        k: Depth.
        tau: Temperature of the ranks.
        tau_k: Softness of the cut, in ranks.
        weights: (b, n), weight of each candidate in the ranks of the others.

    Returns:
        (b,), float32 at least.
    """
    scores = exact(scores)
    gains = (torch.exp2(relevance.to(scores.dtype)) - 1) * mask
    ranks = soft_ranks(scores, tau, descending=True, mask=mask, weights=weights)
    positions = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)

    def discounted(gain: Tensor, rank: Tensor) -> Tensor:
        return (gain / torch.log2(1 + rank) * torch.sigmoid((k + 0.5 - rank) / tau_k)).sum(dim=-1)

    ideal = discounted(gains.sort(dim=-1, descending=True).values, positions)
    reachable = ideal > 0
    return torch.where(reachable, discounted(gains, ranks) / torch.where(reachable, ideal, 1), 0)


def safe_weights(
    scores: Tensor, relevance: Tensor, mask: Tensor, config: RetrievalConfig, threshold: float
) -> tuple[Tensor, Tensor]:
    """Eqs. 40 and 41: weights (b, n) without a gradient, and a mask (b, n) of near negatives, for inputs (b, n)."""
    with torch.no_grad():
        scores, positive = exact(scores), (relevance > 0) & mask
        best = scores.masked_fill(~positive, -torch.inf).amax(dim=-1, keepdim=True)
        theta = (best - config.gap).clamp(min=threshold)
        near = mask & ~positive & (scores >= theta)
        falling = torch.exp(-(scores - theta) / config.temperature).clamp(config.floor, 1)
        weights = torch.where(near, 0.0 if config.drop else falling, 1.0)
    return weights.to(scores.dtype), near


def retrieval_loss(
    scores: Tensor, relevance: Tensor, mask: Tensor, config: RetrievalConfig, threshold: float = torch.inf
) -> RetrievalTerms:
    """Eq. 44: ``(1 - nDCG) + lambda_h hinge + lambda_r moments``, the mean over queries that have a positive.

    Args:
        scores: (b, n) inner products of unit vectors.
        relevance: (b, n), 0 is not relevant.
        mask: (b, n), false at padding; padded scores may be anything finite.
        config: Hyperparameters.
        threshold: Minimum score of a near negative unless ``config.threshold`` is set; infinite means none is near.
    """
    scores, mask = exact(scores), mask.bool()
    threshold = threshold if config.threshold is None else config.threshold
    weights, near = safe_weights(scores, relevance, mask, config, threshold)
    tau_k = config.k / 2 if config.tau_k is None else config.tau_k
    ndcg = soft_ndcg(scores, relevance, mask, k=config.k, tau=config.tau, tau_k=tau_k, weights=weights)
    positive = (relevance > 0) & mask
    counted = positive.any(dim=-1)
    terms = (
        1 - ndcg,
        hinge(scores, positive, mask & ~positive & ~near, config.margin),
        moments(scores, mask, config.variance),
        near.sum(dim=-1),
    )
    queries = counted.sum().clamp(min=1)
    lost, hinged, moved, nears = ((term * counted).sum() / queries for term in terms)
    loss = lost + config.hinge_weight * hinged + config.moments_weight * moved
    return RetrievalTerms(loss, lost.detach(), hinged.detach(), moved.detach(), nears)


def hinge(scores: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Eq. 42: ``max(0, m - s_best_positive + s_hardest_negative)``, (b,); 0 if either is missing."""
    far = torch.finfo(scores.dtype).min / 4  # finite: infinities would give NaN gradients
    best = scores.masked_fill(~positive, far).amax(dim=-1)
    hardest = scores.masked_fill(~negative, far).amax(dim=-1)
    usable = positive.any(dim=-1) & negative.any(dim=-1)
    return torch.where(usable, (margin - best + hardest).clamp(min=0), 0)


def moments(scores: Tensor, mask: Tensor, variance: float) -> Tensor:
    """Eq. 43: ``mean(s)^2 + (var(s) - v)^2`` of each query's candidates, (b,); the variance is smooth at 0."""
    count = mask.sum(dim=-1).clamp(min=1)
    mean = (scores * mask).sum(dim=-1) / count
    spread = ((scores - mean[:, None]).square() * mask).sum(dim=-1) / count
    return mean.square() + (spread - variance).square()
