"""Shares of pairs in Spearman's correlation: their mean is scipy's, their spread the error that draws show."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from xalign_models.ranking.correlation import spearman_shares


def drawn(rng, correlation, n=250):
    x = rng.standard_normal(n)
    y = correlation * x + np.sqrt(1 - correlation**2) * rng.standard_normal(n)
    return x, np.round(2 * y) / 2  # human scores have ties


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.8])
def test_the_mean_is_scipys_and_the_spread_is_the_error_of_many_draws(correlation):
    rng = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(300):
        x, y = drawn(rng, correlation)
        shares = spearman_shares(x, y)
        assert shares.mean() == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
        found.append(shares.mean())
        errors.append(shares.std() / np.sqrt(len(x)))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


def test_the_shares_are_what_leaving_a_pair_out_takes_away():
    x, y = drawn(np.random.default_rng(1), 0.5)
    n = len(x)
    left_out = np.array([spearmanr(np.delete(x, i), np.delete(y, i)).statistic for i in range(n)])
    jackknife = n * spearmanr(x, y).statistic - (n - 1) * left_out
    assert np.corrcoef(jackknife, spearman_shares(x, y))[0, 1] > 0.999


def test_only_ranks_count_and_a_score_that_does_not_vary_has_no_correlation():
    x, y = drawn(np.random.default_rng(2), 0.5)
    assert np.allclose(spearman_shares(x, y), spearman_shares(np.exp(x), rankdata(y)))
    assert np.isnan(spearman_shares(np.ones(5), np.arange(5))).all()
