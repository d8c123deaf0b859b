"""CKA against the kernel form, RSA against scipy, both invariant to what they must be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from xalign_tasks.analyses.pivot_layers import linear_cka, rsa


def two_spaces(n=60, d=8, m=5, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    return x, x[:, :m] + noise * rng.standard_normal((n, m))


def test_cka_is_the_normalised_hsic_of_centred_kernels():
    x, y = two_spaces()
    centre = np.eye(len(x)) - 1 / len(x)
    k, l = (centre @ (side @ side.T) @ centre for side in (x, y))  # noqa: E741
    assert linear_cka(x, y) == pytest.approx((k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum()))


def test_rsa_is_scipys_correlation_of_pairwise_cosines():
    x, y = two_spaces()
    assert rsa(x, y) == pytest.approx(spearmanr(1 - pdist(x, "cosine"), 1 - pdist(y, "cosine")).statistic)


@pytest.mark.parametrize("measure", [linear_cka, rsa])
def test_a_rotation_and_a_scale_change_nothing_and_noise_does(measure):
    x, _ = two_spaces()
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8))).Q
    assert measure(x, 3 * x @ turn) == pytest.approx(1)
    values = [measure(x, two_spaces(noise=noise)[1]) for noise in (0.1, 0.5, 1, 3)]
    assert values == sorted(values, reverse=True)
    assert measure(x, np.ones((60, 3))) == 0


def test_cka_does_not_see_a_shift():
    x, y = two_spaces()
    assert linear_cka(x + 7, y - 2) == pytest.approx(linear_cka(x, y))
