"""The correlation loss and its queue: against scipy, and every degenerate input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from xalign_models.errors import ModelError
from xalign_models.training.lira.queues import CorrQueue, correlation_step
from xalign_models.training.lira.ranks import (
    CorrelationConfig,
    correlation_loss,
    pearson,
    similarity,
    soft_spearman,
)

CONFIG = CorrelationConfig()
Gapped = Callable[..., torch.Tensor]


def labels(n: int, seed: int = 0) -> torch.Tensor:
    """Gold scores with ties, not constant."""
    return torch.randint(0, 6, (n,), generator=torch.Generator().manual_seed(seed)).double() + (torch.arange(n) == 0)


def gradient(function: Callable[[torch.Tensor], torch.Tensor], scores: torch.Tensor) -> torch.Tensor:
    scores = scores.clone().requires_grad_()
    function(scores).backward()
    assert scores.grad is not None
    return scores.grad


@pytest.mark.parametrize("seed", range(5))
def test_spearman_reaches_scipys(gapped: Gapped, seed: int) -> None:
    scores, gold = gapped(30, 0.4, seed), labels(30, seed)
    expected = spearmanr(scores.numpy(), gold.numpy()).statistic
    assert float(soft_spearman(scores, gold, 0.01)) == pytest.approx(expected, abs=1e-6)
    assert float(soft_spearman(scores, 3 * gold, 0.01)) == pytest.approx(expected, abs=1e-6)


def test_pearson_is_scipys() -> None:
    x, y = torch.randn(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(pearson(x, y, 1e-12)) == pytest.approx(pearsonr(x.numpy(), y.numpy()).statistic, abs=1e-9)


def test_loss_mixes_its_terms() -> None:
    x, y = torch.rand(2, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, other = (float(correlation_loss(x, y, CorrelationConfig(alpha=a))) for a in (1.0, 0.0))
    assert one == pytest.approx(1 - float(pearson(x, y)))
    assert other == pytest.approx(1 - float(soft_spearman(x, y, 0.1)))
    assert float(correlation_loss(x, y, CorrelationConfig(alpha=0.25))) == pytest.approx(0.25 * one + 0.75 * other)


def test_gradients_are_right_with_and_without_history() -> None:
    scores = torch.rand(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    gold, past = labels(6), torch.rand(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: correlation_loss(s, gold, CONFIG), scores)

    def with_history(batch: torch.Tensor) -> torch.Tensor:
        queue = CorrQueue(8)
        queue.push(past[0], past[1])
        return correlation_step(queue, batch, gold, CONFIG).loss

    assert torch.autograd.gradcheck(with_history, scores)


def test_history_gets_no_gradient_and_counts_as_a_constant() -> None:
    queue = CorrQueue(8)
    old = torch.rand(8, requires_grad=True)
    queue.push(old, torch.arange(8.0))
    scores = torch.rand(3, requires_grad=True)
    step = correlation_step(queue, scores, torch.tensor([1.0, 3.0, 2.0]), CONFIG)
    step.loss.backward()
    assert old.grad is None
    assert scores.grad is not None and bool((scores.grad != 0).any())
    joined = torch.cat([scores.detach(), old.detach()])
    expected = correlation_loss(joined, torch.cat([torch.tensor([1.0, 3.0, 2.0]), torch.arange(8.0)]), CONFIG)
    torch.testing.assert_close(step.loss.detach(), expected)


def test_queue_is_first_in_first_out() -> None:
    queue = CorrQueue(3)
    queue.push(torch.tensor([0.25, 0.5]), torch.tensor([1.0, 2.0]))
    queue.push(torch.tensor([0.75, 1.0]), torch.tensor([3.0, 4.0]))
    predictions, gold = queue.join(torch.tensor([0.0]), torch.tensor([9.0]))
    assert predictions.tolist() == [0.0, 0.5, 0.75, 1.0]
    assert gold.tolist() == [9.0, 2.0, 3.0, 4.0]
    again = CorrQueue(3)
    again.load_state_dict(queue.state_dict())
    assert again.join(torch.tensor([0.0]), torch.tensor([9.0]))[0].tolist() == predictions.tolist()


@pytest.mark.parametrize("history", [6, 7])
def test_warm_up_ends_at_n_min(history: int) -> None:
    queue = CorrQueue(32)
    queue.push(torch.rand(history), torch.arange(float(history)))
    scores = torch.rand(1, requires_grad=True)
    step = correlation_step(queue, scores, torch.tensor([9.0]), CONFIG)
    step.loss.backward()
    assert step.waiting == (history + 1 < CONFIG.n_min)
    assert scores.grad is not None
    assert bool((scores.grad == 0).all()) == step.waiting
    assert len(queue.state_dict()["pairs"]) == history + 1


def test_batch_of_one_and_an_empty_queue_enqueues_and_gives_zero_gradients() -> None:
    queue = CorrQueue(32)
    weights = torch.rand(4, requires_grad=True)
    step = correlation_step(queue, weights.sum()[None], torch.tensor([2.0]), CONFIG)
    step.loss.backward()
    assert step.waiting and len(queue.state_dict()["pairs"]) == 1
    assert weights.grad is not None and weights.grad.tolist() == [0.0] * 4


def test_constant_predictions_are_learned_from() -> None:
    gold = labels(10).float()
    grad = gradient(lambda s: correlation_step(CorrQueue(0), s, gold, CONFIG).loss, torch.full((10,), 0.5))
    assert bool(grad.isfinite().all()) and float(grad.norm()) > 0
    centred = gold - gold.mean()
    assert float(torch.nn.functional.cosine_similarity(-grad, centred, dim=0)) > 0.9  # descent goes along the labels
    assert correlation_step(CorrQueue(0), torch.full((10,), 0.5), gold, CONFIG).constant


def test_constant_labels_are_skipped() -> None:
    step: Any = None

    def loss(scores: torch.Tensor) -> torch.Tensor:
        nonlocal step
        step = correlation_step(CorrQueue(0), scores, torch.full((10,), 3.0), CONFIG)
        return step.loss

    assert gradient(loss, torch.rand(10)).tolist() == [0.0] * 10
    assert step.waiting and float(step.loss.detach()) == 0


def test_half_precision_is_computed_in_single() -> None:
    a, b = torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    gold = labels(10)
    predictions = similarity(a, b)
    assert predictions.dtype == torch.float32
    step = correlation_step(CorrQueue(4), predictions.bfloat16(), gold.float(), CONFIG)
    assert step.loss.dtype == torch.float32 and bool(step.loss.isfinite())


@pytest.mark.parametrize(
    ("field", "value"), [("tau", 0.0), ("alpha", 1.5), ("epsilon", 0.0), ("max_len", -1), ("n_min", 1)]
)
def test_bad_hyperparameters_are_named(field: str, value: float) -> None:
    fields: Any = {field: value}
    with pytest.raises(ModelError, match=rf"^{field} "):
        CorrelationConfig(**fields)
