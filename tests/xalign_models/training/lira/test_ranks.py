"""Soft ranks against scipy's exact ones; tests use gapped scores, as near ties are soft at any temperature."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy.stats import rankdata

from xalign_models.errors import ModelError
from xalign_models.training.lira.ranks import average_ranks, soft_ranks


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_ranks_reach_the_hard_ones(gapped: Callable[..., torch.Tensor], n: int, seed: int) -> None:
    tau = 0.01
    scores = gapped(n, 40 * tau, seed)
    expected = torch.from_numpy(rankdata(scores.numpy()))
    torch.testing.assert_close(soft_ranks(scores, tau), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(soft_ranks(scores, tau, descending=True), n + 1 - expected, rtol=0, atol=1e-6)


def test_ties_get_average_ranks() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (30,), generator=generator).double() / 6
    expected = torch.from_numpy(rankdata(scores.numpy()))
    torch.testing.assert_close(average_ranks(scores), expected, rtol=0, atol=0)
    torch.testing.assert_close(soft_ranks(scores, 0.01), expected, rtol=0, atol=1e-5)


def test_padding_and_weights_count_as_they_say() -> None:
    scores = torch.tensor([[0.3, 0.9, 0.5, 7.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    padded = soft_ranks(scores, 1e-3, descending=True, mask=mask)[0, :3]
    torch.testing.assert_close(padded, torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64))
    weights = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    weighted = soft_ranks(scores, 1e-3, descending=True, mask=mask, weights=weights)[0, :3]
    torch.testing.assert_close(weighted, torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64))


def test_half_precision_is_computed_in_single() -> None:
    scores = torch.randn(6, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert soft_ranks(scores, 0.1).dtype == torch.float32
    torch.testing.assert_close(soft_ranks(scores, 0.1), soft_ranks(scores.float(), 0.1))


@pytest.mark.parametrize("tau", [0.0, -1.0, 1e-5, float("nan")])
def test_too_small_temperatures_are_refused(tau: float) -> None:
    with pytest.raises(ModelError, match=r"tau .*at least 0.0001"):
        soft_ranks(torch.rand(3), tau)


def test_ties_at_the_least_temperature_have_finite_gradients() -> None:
    scores = torch.tensor([0.5, 0.5, 0.1], requires_grad=True)
    soft_ranks(scores, 1e-4).square().sum().backward()
    assert scores.grad is not None and bool(scores.grad.isfinite().all())
