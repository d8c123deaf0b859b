"""What a rotation explains: all of a planted one, less the more it is sheared, noisy or shuffled."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from xalign_models.alignments import orthogonality
from xalign_models.alignments.orthogonality import determined_map, explained


def spaces(n=900, d=24, shear=0.0, noise=0.0, of_y=0.0, shuffle=0.0, layer_norm=False, seed=0):
    """x, and y that is x turned, sheared, with noise on both sides or on y alone, and with shuffled rows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * np.geomspace(1, 0.1, d)
    if layer_norm:
        x -= x.mean(axis=1, keepdims=True)
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    y = x @ turn @ (np.eye(d) + shear * rng.standard_normal((d, d)) / np.sqrt(d)) + 3
    a, b = (0.4 * rng.standard_normal((n, d)) for _ in range(2))
    x, y = x + noise * a, y + (noise + of_y) * b
    wrong = rng.choice(n, round(shuffle * n), replace=False)
    y[wrong] = y[rng.permutation(wrong)]
    return (x[: n * 4 // 5], y[: n * 4 // 5]), (x[n * 4 // 5 :], y[n * 4 // 5 :])


def share(**kwargs):
    fit, held = spaces(**kwargs)
    return min(explained(fit, held).share, explained(fit[::-1], held[::-1]).share)


@pytest.mark.filterwarnings("error")
def test_nothing_is_explained_of_text_that_does_not_vary():
    fit, (x, y) = spaces()
    found = explained(fit, (x, np.zeros_like(y)))
    assert (found.rotation, found.affine, found.share) == (0, 0, 0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_planted_rotation_explains_all_also_where_directions_have_no_variance(layer_norm):
    fit, held = spaces(layer_norm=layer_norm)
    found = explained(fit, held)
    assert found.rotation == pytest.approx(1, abs=1e-9)
    assert found.affine == pytest.approx(1, abs=1e-9)
    assert found.share == pytest.approx(1, abs=1e-9)
    assert orthogonality(determined_map(*fit)).mean_abs < 1e-6


@pytest.mark.parametrize("field", ["shear", "noise", "of_y", "shuffle"])
def test_the_share_falls_with_everything_that_is_no_rotation(field):
    shares = [share(**{field: amount}) for amount in (0, 0.2, 0.4, 0.6, 0.8)]
    assert all(more > less for more, less in pairwise(shares) if more)
    assert shares[0] == pytest.approx(1, abs=1e-9)
    assert shares[-1] < 0.9


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_pairs_are_no_rotation(seed):
    assert share(shuffle=1.0, seed=seed) < 0.02


def test_the_share_is_by_hand_what_scalings_leave():
    """y = 2 x: a rotation leaves half of y, a quarter of its variance."""
    x = np.random.default_rng(0).standard_normal((200, 3))
    found = explained((x, 2 * x), (x, 2 * x))
    assert found.rotation == found.share == pytest.approx(3 / 4)
    assert found.affine == pytest.approx(1)
    assert explained((2 * x, x), (2 * x, x)).share == pytest.approx(0, abs=1e-12)


def test_the_map_is_least_squares_where_the_data_vary():
    (x, y), _ = spaces(shear=0.5, noise=0.1)
    expected = np.linalg.lstsq(x - x.mean(0), y - y.mean(0))[0]
    np.testing.assert_allclose(determined_map(x, y), expected, atol=1e-8)
