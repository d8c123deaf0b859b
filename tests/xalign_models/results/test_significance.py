"""Design effects and Holm's correction."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.results.significance import ALPHA, design_effect, effect_of_changes, holm, sign_flip_test


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    assert holm([0.01, 0.02, 0.5], [2, 1, 1]) == pytest.approx([0.02, 0.04, 0.5])  # 4/2 * 0.01, 2/1 * 0.02, 1/1 * 0.5


def test_holm_keeps_its_level_where_all_are_one() -> None:
    """Fully dependent tests: 37 times the same p."""
    p = np.random.default_rng(0).random(2000)
    assert np.mean([min(holm([one] * 37)) < 0.05 for one in p]) <= 0.05


@pytest.mark.parametrize("n", [1, 2, 7, 64, 500])
def test_the_design_effect_is_newey_and_wests_variance_over_that_of_independent_items(n: int) -> None:
    rows = np.random.default_rng(n).normal(size=(3, n)) + np.sin(np.arange(n) / 5)
    rows -= rows.mean(axis=1, keepdims=True)
    lags = round(n ** (1 / 3))
    for row, effect in zip(rows, design_effect(rows), strict=True):
        weights = {lag: 2 * (1 - lag / (lags + 1)) for lag in range(1, min(lags, n - 1) + 1)}
        covariances = [weight * row[lag:] @ row[: n - lag] for lag, weight in weights.items()]
        assert effect == pytest.approx(max(1 + sum(covariances) / (row @ row or 1), 1))
        assert design_effect(row[::-1]) == pytest.approx(effect)


def test_items_that_move_together_count_as_one() -> None:
    rng = np.random.default_rng(0)
    for together in (1, 2, 3):
        rows = np.repeat(rng.choice([-1.0, 1.0], (200, 3000)), together, axis=1)
        assert design_effect(rows).mean() == pytest.approx(together, rel=0.08)
        p = [sign_flip_test(row, float(effect)) for row, effect in zip(rows, design_effect(rows), strict=True)]
        assert np.mean(np.array(p) < ALPHA) <= 0.1  # 5% and three standard errors


def test_a_few_changes_take_the_effect_of_the_outcomes() -> None:
    outcomes = np.repeat(np.random.default_rng(0).choice([-1.0, 1.0], 300), 3)
    none, few, many = (np.where(np.arange(900) % (900 // max(k, 1)) == 0, k > 0, 0.0) for k in (0, 3, 300))
    prior = float(design_effect(outcomes))
    assert prior > 2
    assert effect_of_changes(none, outcomes) == pytest.approx(prior)
    assert effect_of_changes(few, outcomes) == pytest.approx((3 + 10 * prior) / 13)
    assert effect_of_changes(many - many.mean(), outcomes) < 1.1
