"""Factor analysis: planted factors come back, and the posterior is the Gaussian's conditional."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.atlas.factors import Factors, fit, infer, logit, score_of


def planted(models: int = 120, cells: int = 60, rank: int = 2, seed: int = 0):
    rng = np.random.default_rng(seed)
    factors = Factors(rng.normal(size=cells), rng.normal(size=(cells, rank)), np.full(cells, 0.01))
    noise = rng.normal(0, 0.1, (models, cells))
    return factors, factors.mean + rng.normal(size=(models, rank)) @ factors.loadings.T + noise, rng


def test_hidden_cells_of_planted_factors_come_back():
    _, table, rng = planted()
    hidden = rng.random(table.shape) < 0.4
    kept = np.where(hidden, np.nan, table)
    found = fit(kept, rank=4)
    guess, error = infer(found, kept).predict(found)
    assert np.abs(guess - table)[hidden].mean() < 0.2 < np.abs(table - table.mean(axis=0))[hidden].mean()
    spread = np.sqrt(error**2 + found.noise)
    assert 0.8 < (np.abs(guess - table) < 1.645 * spread)[hidden].mean() <= 0.97


def test_the_posterior_is_the_conditional_of_the_joint_gaussian():
    factors, table, rng = planted(models=3, cells=8)
    table[rng.random(table.shape) < 0.5] = np.nan
    guess, error = infer(factors, table).predict(factors)
    joint = factors.loadings @ factors.loadings.T
    for row, values in enumerate(table):
        seen = np.isfinite(values)
        gain = joint[:, seen] @ np.linalg.inv(joint[np.ix_(seen, seen)] + np.diag(factors.noise[seen]))
        np.testing.assert_allclose(guess[row], factors.mean + gain @ (values - factors.mean)[seen])
        np.testing.assert_allclose(error[row] ** 2, np.diag(joint - gain @ joint[seen]), atol=1e-9)


def test_a_cell_of_weight_zero_says_nothing():
    factors, table, _ = planted(models=3, cells=8)
    weights = np.r_[np.ones(5), np.zeros(3)]
    without = np.where(weights > 0, table, np.nan)
    np.testing.assert_allclose(infer(factors, table, weights).mean, infer(factors, without).mean)


def test_scores_come_back_from_logits():
    scores = np.array([0.02, 0.5, 0.99, np.nan])
    assert score_of(logit(scores)) == pytest.approx(scores, nan_ok=True)
