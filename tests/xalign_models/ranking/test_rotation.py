"""The polar factor by products is the SVD's, and what has none is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xalign_models.ranking.pairs import polar, polar_by_products


@pytest.mark.parametrize("condition", [1e2, 1e8])
def test_products_find_the_polar_factor_of_the_svd(condition):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((5, 24, 24))).Q for _ in range(2))
    matrices = torch.from_numpy(7 * (left * np.geomspace(1, 1 / condition, 24)) @ right)
    found, good = polar_by_products(matrices)
    assert good.all()
    np.testing.assert_allclose(found, left @ right, atol=1e-15 * condition + 1e-9)


def test_products_say_which_matrix_has_no_polar_factor():
    rng = np.random.default_rng(0)
    matrices = torch.from_numpy(rng.standard_normal((3, 8, 8)))
    matrices[1, :, 0] = 0
    _, good = polar_by_products(matrices)
    assert good.tolist() == [True, False, True]


def test_where_products_fail_the_svd_takes_over():
    matrices = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 8, 8)))
    matrices[1, :, 0] = 0
    found = polar(matrices)
    np.testing.assert_allclose(found @ found.mT, np.tile(np.eye(8), (3, 1, 1)), atol=1e-8)
    stretched = found.mT @ matrices  # symmetric and positive: the other factor
    np.testing.assert_allclose(stretched, stretched.mT, atol=1e-8)
    assert torch.linalg.eigvalsh(stretched).min() > -1e-8
