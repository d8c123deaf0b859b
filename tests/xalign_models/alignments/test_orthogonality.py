"""Orthogonality and dilation against hand-worked matrices and loops over the paper's sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xalign_models.alignments import dilation, orthogonality
from xalign_models.errors import AlignmentError


@pytest.mark.parametrize("scale", [1.0, -0.3, 40.0])
def test_a_rotation_times_a_scalar_scores_zero(scale):
    turn = scale * np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20))).Q
    p, alpha = orthogonality(turn), dilation(turn)
    assert max(p.mean_abs, p.std, -p.min, p.max) < 1e-14
    assert not p.exceeds
    assert (alpha.std, alpha.range) == pytest.approx((0, 0), abs=1e-14)
    assert (alpha.mean, alpha.min, alpha.max) == pytest.approx((abs(scale),) * 3)


def test_columns_of_a_are_rows_of_w():
    """A = [[3, 1], [4, 0]] on column vectors: columns (3, 4) and (1, 0), p = 3/5; its rows would give 3/sqrt(10)."""
    a = np.array([[3.0, 1.0], [4.0, 0.0]])
    p, alpha = orthogonality(a.T), dilation(a.T)
    assert (p.mean_abs, p.std, p.min, p.max) == pytest.approx((0.6, 0, 0.6, 0.6))
    assert p.exceeds
    assert (alpha.mean, alpha.min, alpha.max) == pytest.approx((3, 1, 5))
    assert (alpha.std, alpha.range) == pytest.approx((2 / 3, 4 / 3))
    assert orthogonality(a).mean_abs == pytest.approx(3 / math.sqrt(10))


def test_a_shear():
    """y = x [[1, s], [0, 1]]: rows (1, s) and (0, 1), p = s / sqrt(1 + s^2), an angle of arccos p."""
    s = -math.tan(math.radians(20))
    p = orthogonality([[1, s], [0, 1]])
    assert (p.min, p.max, p.mean_abs) == pytest.approx(
        (-math.sin(math.radians(20)),) * 2 + (math.sin(math.radians(20)),)
    )
    assert not p.exceeds  # 70 degrees; the limit is 67.5
    assert orthogonality([[1, -math.tan(math.radians(23))], [0, 1]]).exceeds


def test_the_sums_of_the_paper():
    a = np.random.default_rng(0).standard_normal((5, 5))
    norm = [math.sqrt(sum(a[i, j] ** 2 for i in range(5))) for j in range(5)]
    values = [
        sum(a[i, j] * a[i, k] for i in range(5)) / (norm[j] * norm[k]) for j in range(5) for k in range(5) if j != k
    ]
    mean = sum(values) / 20
    p, alpha = orthogonality(a.T), dilation(a.T)
    assert p.mean_abs == pytest.approx(sum(map(abs, values)) / 20)
    assert p.std == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 20))
    assert (p.min, p.max) == pytest.approx((min(values), max(values)))
    average = sum(norm) / 5
    assert alpha.std == pytest.approx(math.sqrt(sum((v - average) ** 2 for v in norm) / 5) / average)
    assert alpha.range == pytest.approx((max(norm) - min(norm)) / average)


@pytest.mark.parametrize("bad", [[[1.0]], [1.0, 2.0], [[1, 0], [0, 0]], [[1, 0], [0, np.nan]]])
def test_maps_without_angles_are_refused(bad):
    for measure in (orthogonality, dilation):
        with pytest.raises(AlignmentError):
            measure(bad)
