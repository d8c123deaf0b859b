"""The retrieval loss of several queries, with every part worked out a query at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from xalign_models.training.lira.ndcg import RetrievalConfig, hinge, moments, retrieval_loss, safe_weights, soft_ndcg
from xalign_models.training.lira.ranks import CorrelationConfig, correlation_loss, pearson, similarity

CONFIG = RetrievalConfig(k=3)


@pytest.fixture
def queries() -> tuple[Tensor, Tensor, Tensor]:
    """Scores, relevance and mask of five queries with seven candidates; the last one has no positive."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(5, 7, generator=generator, dtype=torch.float64) * 2 - 1
    relevance = torch.zeros(5, 7, dtype=torch.float64)
    relevance[[0, 1, 2, 3], [0, 3, 1, 4]] = 1
    relevance[2, 5] = 2
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[0, 5:], mask[3, 6] = False, False
    return scores, relevance, mask


@pytest.mark.parametrize("threshold", [math.inf, 0.0])
def test_each_query_is_by_itself(queries: tuple[Tensor, Tensor, Tensor], threshold: float) -> None:
    whole = retrieval_loss(*queries, CONFIG, threshold)
    alone = [retrieval_loss(*(part[i : i + 1] for part in queries), CONFIG, threshold) for i in range(4)]
    for name in ("loss", "ndcg", "hinge", "moments", "near"):
        expected = sum(float(getattr(terms, name)) for terms in alone) / 4
        assert float(getattr(whole, name)) == pytest.approx(expected), name
    weights, near = safe_weights(*queries, CONFIG, threshold)
    for i in range(4):
        one = safe_weights(*(part[i : i + 1] for part in queries), CONFIG, threshold)
        assert torch.equal(one[0][0], weights[i])
        assert torch.equal(one[1][0], near[i])
    assert bool(near.any()) == (threshold == 0)


def test_the_configurations_threshold_goes_first(queries: tuple[Tensor, Tensor, Tensor]) -> None:
    given = retrieval_loss(*queries, CONFIG, 0.0)
    assert retrieval_loss(*queries, RetrievalConfig(k=3, threshold=0.0), math.inf) == given
    assert float(retrieval_loss(*queries, RetrievalConfig(k=3, threshold=math.inf), 0.0).near) == 0 < float(given.near)


def test_near_negatives_are_not_in_the_hinge() -> None:
    """Positive 0.5; a near negative 0.9 and another of 0.2: the hinge is 0.6 - 0.5 + 0.2."""
    scores, relevance = torch.tensor([[0.5, 0.9, 0.2]]), torch.tensor([[1.0, 0, 0]])
    config = RetrievalConfig(margin=0.6, threshold=0.8)
    terms = retrieval_loss(scores, relevance, torch.ones(1, 3, dtype=torch.bool), config)
    assert float(terms.hinge) == pytest.approx(0.3)
    assert float(terms.near) == 1


def test_the_hinge_needs_both_sides() -> None:
    scores = torch.tensor([[0.5, 0.9], [0.5, 0.9], [0.5, 0.9]])
    positive = torch.tensor([[True, False], [True, False], [False, False]])
    negative = torch.tensor([[False, True], [False, False], [False, True]])
    assert hinge(scores, positive, negative, 0.1).tolist() == pytest.approx([0.5, 0, 0])


def test_without_a_positive_ndcg_is_zero(queries: tuple[Tensor, Tensor, Tensor]) -> None:
    found = soft_ndcg(*queries, k=3, tau=0.1, tau_k=1)
    assert float(found[4]) == 0 < float(found[:4].min())


def test_moments_by_hand() -> None:
    """Of (1, 2) and of (0.5) alone: means 1.5 and 0.5, variances 0.25 and 0."""
    scores = torch.tensor([[1.0, 2, 9], [0.5, 9, 9]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert moments(scores, mask, 0.04).tolist() == pytest.approx([1.5**2 + 0.21**2, 0.5**2 + 0.04**2])


def test_similarities_are_inner_products() -> None:
    a, b = torch.tensor([[0.6, 0.8], [1.0, 0]]), torch.tensor([[0.8, 0.6], [0.5, 2]])
    assert similarity(a, b).tolist() == pytest.approx([0.96, 0.5])


def test_epsilon_is_added_to_both_variances_everywhere() -> None:
    x, y = torch.tensor([0.0, 1, 2], dtype=torch.float64), torch.tensor([1.0, 2, 4], dtype=torch.float64)
    # covariance 1, variances 2/3 and 14/9
    assert float(pearson(x, y, 0.5)) == pytest.approx(1 / math.sqrt((2 / 3 + 0.5) * (14 / 9 + 0.5)))
    for alpha in (0.0, 1.0):
        large, small = (correlation_loss(x, y, CorrelationConfig(alpha=alpha, epsilon=e)) for e in (0.5, 1e-9))
        assert float(large) > float(small) + 0.1
