"""LowRank finds planted maps, and none of its rank is nearer."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.alignments import AffineMap, LowRank
from xalign_models.alignments.lowrank import low_rank
from xalign_models.errors import AlignmentError


def planted(rank, n=300, d=12, noise=0.0):
    rng = np.random.default_rng(0)
    english = rng.standard_normal((n, d))
    change = rng.standard_normal((d, rank)) @ rng.standard_normal((rank, d)) / d
    german = english @ np.linalg.inv(np.eye(d) + change) - rng.standard_normal(d)
    return {"eng-Latn": english + noise * rng.standard_normal((n, d)), "deu-Latn": german}


def test_a_planted_change_of_low_rank_is_found_and_a_lower_rank_is_not_enough():
    data = planted(2)
    errors = [np.abs(LowRank(rank=rank).fit(data).transform(data["deu-Latn"], "de") - data["eng-Latn"]).max()
              for rank in (1, 2, 5)]  # fmt: skip
    assert errors[0] > 0.1
    assert max(errors[1:]) < 1e-6


def test_full_rank_is_the_affine_map_and_rank_0_a_shift():
    data = planted(3, noise=0.2)
    full, affine = LowRank(rank=12).fit(data), AffineMap().fit(data)
    np.testing.assert_allclose(full.weights_, affine.weights_, atol=1e-9)
    np.testing.assert_allclose(full.shifts_, affine.shifts_, atol=1e-9)
    np.testing.assert_allclose(LowRank(rank=0).fit(data).weights_[1], np.eye(12))


def test_no_map_of_its_rank_is_nearer():
    """Alternating least squares from many starts, which knows nothing of eigenvectors."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((200, 8)), rng.standard_normal((200, 6))
    y += x @ rng.standard_normal((8, 6))
    weight, shift = low_rank(x, y, 2)
    assert np.linalg.matrix_rank(weight, tol=1e-9) == 2
    ours = np.square(x @ weight + shift - y).sum()
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    least = np.inf
    for seed in range(5):
        right = np.random.default_rng(seed).standard_normal((2, 6))
        for _ in range(200):
            left = np.linalg.lstsq(xc, yc @ np.linalg.pinv(right))[0]
            right = np.linalg.lstsq(xc @ left, yc)[0]
        least = min(least, np.square(xc @ left @ right - yc).sum())
    assert ours <= least * (1 + 1e-4)  # the ridge costs a little


def test_a_negative_rank_is_refused():
    with pytest.raises(AlignmentError, match="rank=-1"):
        LowRank(rank=-1)
