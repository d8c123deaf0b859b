"""The paired test: exact where it says so, never below the exact p elsewhere."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from xalign_models.results.intervals import standard_error
from xalign_models.results.significance import fall_p, holm


def exact(gaps) -> float:
    """By all sign patterns."""
    sums = [sum(s * abs(g) for s, g in zip(signs, gaps, strict=True)) for signs in product((-1, 1), repeat=len(gaps))]
    return float(np.mean([one <= sum(gaps) + 1e-12 for one in sums]))


@pytest.mark.parametrize(("lost", "won"), [(1, 0), (5, 0), (7, 2), (3, 3), (0, 4), (40, 5)])
def test_right_and_wrong_answers_are_mcnemars(lost: int, won: int) -> None:
    gaps = np.array([-0.1] * lost + [0.1] * won + [0.0] * 50)
    n = lost + won
    assert fall_p(gaps) == pytest.approx(sum(comb(n, k) for k in range(lost, n + 1)) / 2**n)


@pytest.mark.parametrize("seed", range(30))
def test_others_are_bounded_from_above_and_not_far(seed: int) -> None:
    gaps = np.random.default_rng(seed).normal(-0.3, 1, 12)
    assert exact(gaps) <= fall_p(gaps) <= max(30 * exact(gaps), 1e-3)


def test_nothing_moved() -> None:
    assert fall_p(np.zeros(5)) == 1
    assert fall_p(np.array([1e-17, -1e-17, 0])) == 1  # what is left of shares that cancel
    assert standard_error(np.zeros(5)) == standard_error(np.ones(1)) == 0


def test_a_certain_fall_survives_any_correction() -> None:
    assert fall_p(np.full(40, -0.1)) == pytest.approx(2**-40)
    assert fall_p(-np.linspace(1, 2, 60)) < 1e-9


def test_the_error_is_that_of_repeated_sampling() -> None:
    rng = np.random.default_rng(0)
    draws = rng.choice([-1, 0, 0, 0, 1, 1], (4000, 300)) / 300
    assert np.mean([standard_error(row) for row in draws]) == pytest.approx(draws.sum(axis=1).std(), rel=0.05)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []


def test_holm_keeps_its_level_where_all_are_one() -> None:
    """Fully dependent tests: 37 times the same p."""
    p = np.random.default_rng(0).random(2000)
    assert np.mean([min(holm([one] * 37)) < 0.05 for one in p]) <= 0.05
