"""Whitening makes covariances equal to the identity's, moves embeddings least, and stands few and flat rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from xalign_models.alignments import Whitened


def test_many_rows_become_white_and_white_rows_stay():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20000, 6)) @ rng.standard_normal((6, 6)) + 3
    fitted = Whitened().fit({"l": x})
    out = fitted.transform(x, "l")
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-9)
    covariance = np.cov(out.T)
    np.testing.assert_allclose(covariance / covariance[0, 0], np.eye(6), atol=0.02)
    np.testing.assert_allclose(fitted.weights_[0], fitted.weights_[0].T, atol=1e-12)  # ZCA, not PCA
    again = Whitened().fit({"l": out}).transform(out, "l")
    np.testing.assert_allclose(again, out, atol=0.02)


def test_the_covariance_is_scikit_learns_estimate():
    x = np.random.default_rng(0).standard_normal((30, 8)) * np.arange(1, 9)
    covariance = LedoitWolf().fit(x).covariance_
    values, vectors = np.linalg.eigh(covariance)
    expected = vectors @ np.diag(np.sqrt(np.trace(covariance) / 8 / values)) @ vectors.T
    np.testing.assert_allclose(Whitened().fit({"l": x}).weights_[0], expected, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_or_flat_rows_give_a_finite_map(n):
    x = np.ones((n, 4))
    x[: n // 2, 0] = 2
    assert np.isfinite(Whitened().fit({"l": x}).transform(x, "l")).all()
