"""Soft nDCG and its companions: exact nDCG in the limit, gradients, every degenerate input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from xalign_models.errors import ModelError
from xalign_models.training.lira.ndcg import RetrievalConfig, hinge, moments, retrieval_loss, safe_weights, soft_ndcg

CONFIG = RetrievalConfig()
Gapped = Callable[..., torch.Tensor]
TRUE = torch.tensor(True)


def exact_ndcg(scores: np.ndarray[Any, Any], relevance: np.ndarray[Any, Any], k: int) -> float:
    """By the definition: gain 2^rel - 1, discount log2(1 + rank)."""

    def dcg(order: np.ndarray[Any, Any]) -> float:
        return sum((2 ** relevance[i] - 1) / math.log2(rank + 2) for rank, i in enumerate(order[:k]))

    return dcg(np.argsort(-scores)) / dcg(np.argsort(-relevance))


def full(scores: torch.Tensor) -> torch.Tensor:
    return torch.ones(scores.shape, dtype=torch.bool)


@pytest.mark.parametrize("k", [1, 5, 10])
@pytest.mark.parametrize("seed", range(4))
def test_ndcg_reaches_the_exact_one(gapped: Gapped, seed: int, k: int) -> None:
    scores = torch.stack([gapped(20, 0.4, seed), gapped(20, 0.4, seed + 100)])
    relevance = torch.zeros(2, 20, dtype=torch.float64)
    relevance[0, seed], relevance[1, [seed, 7, 12]] = 1, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = soft_ndcg(scores, relevance, full(scores), k=k, tau=0.01, tau_k=0.01)
    expected = [exact_ndcg(s.numpy(), r.numpy(), k) for s, r in zip(scores, relevance, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)


def test_perfect_ranking_scores_one_at_any_softness(gapped: Gapped) -> None:
    scores = gapped(12, 1.0)[None]
    relevance = (scores == scores.max()).double()
    for k, tau_k in ((1, 1.0), (5, 2.5), (10, 5.0)):
        found = soft_ndcg(scores, relevance, full(scores), k=k, tau=0.01, tau_k=tau_k)
        assert float(found) == pytest.approx(1, abs=1e-6)


def test_gradients_are_right() -> None:
    scores = torch.rand(2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    relevance = torch.zeros(2, 9, dtype=torch.float64)
    relevance[0, 2], relevance[1, [1, 4]] = 1, 1
    mask = full(relevance).clone()
    mask[0, 7:] = False
    for threshold in (math.inf, 0.2):
        # The safe weights are constants by definition: they are held at the point where the gradient is taken.
        weights, _ = safe_weights(scores, relevance, mask, CONFIG, threshold)
        assert torch.autograd.gradcheck(
            lambda s, w=weights: soft_ndcg(s, relevance, mask, k=3, tau=0.1, tau_k=1.5, weights=w), scores
        )
    assert torch.autograd.gradcheck(lambda s: retrieval_loss(s, relevance, mask, CONFIG).loss, scores)


def near_case(positive: float = 0.8, near: float = 0.81) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores = torch.tensor([[positive, near, 0.2, 0.1]], dtype=torch.float64)
    relevance = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    return scores, relevance, full(scores)


def test_near_negatives_weigh_what_eq_41_says() -> None:
    scores, relevance, mask = near_case()
    weights, near = safe_weights(scores, relevance, mask, CONFIG, 0.5)
    assert near.tolist() == [[False, True, False, False]]
    assert weights[0].tolist() == pytest.approx([1, math.exp(-(0.81 - 0.75) / 0.05), 1, 1])
    weights, _ = safe_weights(scores, relevance, mask, RetrievalConfig(drop=True), 0.5)
    assert weights[0].tolist() == [1, 0, 1, 1]
    weights, _ = safe_weights(*near_case(near=0.99), CONFIG, 0.5)
    assert float(weights[0, 1]) == pytest.approx(0.05)


def test_weights_stop_the_gradient_so_that_a_near_negative_is_pushed_down() -> None:
    scores, relevance, mask = near_case()
    scores.requires_grad_()

    def slope(weights: torch.Tensor) -> float:
        loss = 1 - soft_ndcg(scores, relevance, mask, k=10, tau=0.1, tau_k=5, weights=weights)
        return float(torch.autograd.grad(loss.sum(), scores)[0][0, 1])

    stopped, _ = safe_weights(scores, relevance, mask, CONFIG, 0.5)
    flowing = torch.where(torch.arange(4) == 1, torch.exp(-(scores - 0.75) / 0.05), torch.ones(1))
    torch.testing.assert_close(stopped, flowing.detach())
    assert slope(stopped) > 0 > slope(flowing)


def test_absolute_threshold_keeps_the_loss_of_a_positive_that_comes_last() -> None:
    scores = torch.cat([torch.tensor([-0.1]), torch.linspace(0.1, 0.3, 31)])[None]
    relevance = torch.zeros(1, 32)
    relevance[0, 0] = 1
    lenient = RetrievalConfig(drop=True, tau=0.01, tau_k=0.01, hinge_weight=0, moments_weight=0)
    assert float(retrieval_loss(scores, relevance, full(scores), lenient, -math.inf).loss) < 0.05
    assert float(retrieval_loss(scores, relevance, full(scores), lenient, 0.9).loss) > 0.95


def test_hinge_and_moments_are_their_formulas() -> None:
    scores = torch.tensor([[0.5, 0.45, 0.9, 0.0]])
    positive = torch.tensor([[True, False, False, False]])
    negative = torch.tensor([[False, True, False, True]])  # the third is a gated near negative
    assert hinge(scores, positive, negative, 0.1).tolist() == pytest.approx([0.05])
    assert hinge(scores, positive, ~positive, 0.1).tolist() == pytest.approx([0.5])
    mask = torch.tensor([[True, True, False, True]])
    kept = np.array([0.5, 0.45, 0.0])
    assert float(moments(scores, mask, 0.04)) == pytest.approx(kept.mean() ** 2 + (kept.var() - 0.04) ** 2)


def test_terms_add_up() -> None:
    scores = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    relevance = torch.eye(6)[:3]
    terms = retrieval_loss(scores, relevance, full(scores), CONFIG)
    assert float(terms.loss) == pytest.approx(float(terms.ndcg + 0.5 * terms.hinge + 0.01 * terms.moments))


def backward(
    scores: torch.Tensor, relevance: torch.Tensor, mask: torch.Tensor, config: RetrievalConfig = CONFIG, **options: Any
) -> tuple[Any, torch.Tensor]:
    scores = scores.clone().requires_grad_()
    terms = retrieval_loss(scores, relevance, mask, config, **options)
    terms.loss.backward()
    assert scores.grad is not None and bool(scores.grad.isfinite().all()) and bool(terms.loss.isfinite())
    return terms, scores.grad


def test_queries_without_a_positive_are_left_out_of_the_mean() -> None:
    scores = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
    relevance = torch.zeros(2, 5)
    terms, grad = backward(scores, relevance, full(scores))
    assert float(terms.loss) == 0 and bool((grad == 0).all())
    relevance[0, 1] = 1
    both, grad = backward(scores, relevance, full(scores))
    alone, _ = backward(scores[:1], relevance[:1], full(scores)[:1])
    torch.testing.assert_close(both.loss, alone.loss)
    assert bool((grad[1] == 0).all())


def test_without_negatives_there_is_nothing_to_rank() -> None:
    terms, _ = backward(torch.tensor([[0.3]]), torch.ones(1, 1), full(torch.ones(1, 1)))
    assert float(terms.ndcg) == pytest.approx(0, abs=1e-6)
    assert float(terms.hinge) == 0
    six = torch.linspace(0.1, 0.9, 6)[None]
    terms, _ = backward(six, torch.ones(1, 6), full(six), RetrievalConfig(tau=0.05))
    assert float(terms.ndcg) < 0.05
    assert float(terms.hinge) == 0


def test_near_duplicates_alone_are_finite_and_never_all_dropped() -> None:
    scores = torch.full((1, 8), 0.9) + 0.001 * torch.arange(8.0)
    relevance = torch.zeros(1, 8)
    relevance[0, 0] = 1
    terms, grad = backward(scores, relevance, full(scores), threshold=0.5)
    weights, near = safe_weights(scores, relevance, full(scores), CONFIG, 0.5)
    assert int(near.sum()) == 7 and float(weights.min()) > 0
    assert float(terms.ndcg) > 0 and float(grad.norm()) > 0


def test_more_tied_positives_than_k_may_exceed_one_and_fewer_never() -> None:
    scores = torch.full((1, 6), 0.5, dtype=torch.float64)
    many = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    options = {"k": 2, "tau": 0.1, "tau_k": 0.01}
    tied = soft_ndcg(scores[:, :3], many[:, :3], full(scores[:, :3]), **options)
    assert float(tied) > 1
    few = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    assert float(soft_ndcg(scores, few, full(scores), **options)) <= 1


def test_padding_is_invisible() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, relevance = torch.rand(2, 5, generator=generator), torch.eye(5)[:2]
    for junk in (-1e9, 1e9, 0.0):
        wide = torch.cat([scores, torch.full((2, 3), junk)], dim=1)
        mask = torch.arange(8)[None].expand(2, 8) < 5
        terms, grad = backward(wide, torch.cat([relevance, torch.zeros(2, 3)], dim=1), mask, threshold=0.4)
        expected, wanted = backward(scores, relevance, full(scores), threshold=0.4)
        torch.testing.assert_close(terms.loss, expected.loss)
        torch.testing.assert_close(grad[:, :5], wanted)
        assert bool((grad[:, 5:] == 0).all())


def test_constant_scores_are_finite() -> None:
    scores = torch.full((2, 6), 0.5)
    _, grad = backward(scores, torch.eye(6)[:2], full(scores), threshold=0.3)
    assert float(grad.norm()) > 0


def test_half_precision_is_computed_in_single() -> None:
    scores = torch.rand(2, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    terms = retrieval_loss(scores, torch.eye(6)[:2].bfloat16(), full(scores), CONFIG)
    assert terms.loss.dtype == torch.float32 and bool(terms.loss.isfinite())


@pytest.mark.parametrize(("field", "value"), [("k", 0), ("tau", 0), ("tau_k", 0.0), ("floor", 0.0), ("max_len", -1)])
def test_bad_hyperparameters_are_named(field: str, value: float) -> None:
    fields: Any = {field: value}
    with pytest.raises(ModelError, match=rf"^(lasr\.loss\.)?{field} "):
        RetrievalConfig(**fields)
