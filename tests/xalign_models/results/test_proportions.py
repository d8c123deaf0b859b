"""Score tests of a fall: the level holds by exact enumeration, and Tango's own numbers come out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from xalign_models.results.proportions import Fall, Z, counted, fall_of, interval, items_needed, p_of_fall, score


def probabilities(n: int, lost: float, won: float):
    """Every (lost, won) of n items that is not all too rare, and its probability."""
    b = np.arange(int(binom.isf(1e-10, n, lost)) + 2)[:, None]
    c = np.arange(int(binom.isf(1e-10, n, won)) + 2)[None, :]
    return b, c, binom.pmf(b, n, lost) * binom.pmf(c, np.maximum(n - b, 0), won / (1 - lost)) * (b + c <= n)


@pytest.mark.parametrize("margin", [0.005, 0.01, 0.05])
@pytest.mark.parametrize("n", [20, 100, 268, 1000])
def test_neither_side_exceeds_its_level_whatever_the_churn(n: int, margin: float) -> None:
    """Exact, at the margin's edge; the fail side also at the small levels of a correction for many rows."""
    for won in (0, 0.001, 0.005, 0.02, 0.05, 0.2):
        lost, gained, chances = probabilities(n, won + margin, won)
        z = score(counted(lost, gained, n), margin)
        assert chances[z <= -Z].sum() <= 0.05
        for rows in (1, 23, 2000):
            assert chances[z >= norm.isf(0.05 / rows)].sum() <= 0.05 / rows


@pytest.mark.parametrize(("lost", "won", "n", "margin"), [(9, 4, 300, 0.05), (0, 0, 500, 0.01), (2, 0, 100, 0.08)])
def test_the_variance_is_the_likelihoods(lost: int, won: int, n: int, margin: float) -> None:
    """By a search for the most likely share of won items under the margin, less the half item of continuity."""

    def unlikely(rate: float) -> float:
        same = n - lost - won
        return -(lost * np.log(rate + margin) + won * np.log(rate) + same * np.log(1 - 2 * rate - margin))

    rate = minimize_scalar(
        unlikely, bounds=(1e-12, (1 - margin) / 2 - 1e-12), method="bounded", options={"xatol": 1e-10}
    ).x
    expected = (lost - won + 0.5 - n * margin) / np.sqrt(n * (2 * rate + margin - margin**2))
    assert score(counted(lost, won, n), margin) == pytest.approx(expected, rel=1e-4)


def test_no_move_vouches_for_the_number_of_items() -> None:
    """(1 - 0.01)^n is below 5% from n = 299 on: no smaller number may pass."""
    _, high = interval(counted(0, 0, 299))
    assert high >= 1 - 0.05 ** (1 / 299)
    assert interval(counted(0, 0, 20))[1] > 0.1
    assert interval(counted(0, 0, 1)) == (-1, 1)


def test_the_interval_ends_where_the_test_turns() -> None:
    rng = np.random.default_rng(0)
    for fall in (counted(12, 5, 400), fall_of(rng.normal(0, 0.2, 300) / 300, 1 / 300)):
        low, high = interval(fall)
        assert p_of_fall(fall, low + 1e-6) > 0.05 > p_of_fall(fall, low - 1e-6)
        assert score(fall, high + 1e-6) < -Z < score(fall, high - 1e-6)
        mirrored = interval(fall._replace(total=-fall.total))
        assert mirrored == pytest.approx((-high, -low), abs=1e-9)


def test_many_falls_have_the_intervals_of_each() -> None:
    falls = [counted(12, 5, 400), counted(0, 0, 20), counted(0, 0, 1), counted(3, 30, 200)]
    low, high = interval(Fall(*np.array(falls).T))
    each = np.array([interval(fall) for fall in falls])
    assert low == pytest.approx(each[:, 0], abs=1e-15)
    assert high == pytest.approx(each[:, 1], abs=1e-15)
    assert p_of_fall(Fall(*np.array(falls).T), np.full(4, 0.01)) == pytest.approx([p_of_fall(f, 0.01) for f in falls])


def test_counts_and_gaps_agree() -> None:
    gaps = np.array([-1] * 7 + [1] * 3 + [0] * 90) / 100
    assert score(fall_of(gaps, 0.01), 0.02) == pytest.approx(float(score(counted(7, 3, 100), 0.02)))


@pytest.mark.parametrize("n", [50, 200, 500])
def test_rare_large_falls_among_small_moves_do_not_pass(n: int) -> None:
    """One item in a hundred falls wholly, or, for a mean over 22 languages, in all of them at once."""
    rng = np.random.default_rng(n)
    rare = rng.random((1500, n)) < 0.01
    languages = (rng.binomial(22, 0.02, (1500, n)) - rng.binomial(22, 0.02, (1500, n))) / 22
    for small in (rng.uniform(-0.05, 0.05, (1500, n)), languages):
        falls = [fall_of(-row / n, 1 / n) for row in small + rare]
        assert np.mean([score(fall, 0.01) <= -Z for fall in falls]) <= 0.06  # 5% and two standard errors
        gains = [fall_of(-row / n, 1 / n) for row in small - rare + 0.02]
        assert np.mean([score(fall, 0.01) >= Z for fall in gains]) <= 0.06


def test_the_planned_number_passes_as_often_as_promised() -> None:
    n = items_needed(0.02, 0.04, languages=5, power=0.7)
    rng = np.random.default_rng(1)
    changed = rng.binomial(n, 0.04, (5000, 5))
    lost = rng.binomial(changed, 0.5)
    passed = (
        (score(counted(lost, changed - lost, n).with_effect(1 + 0.4 * n ** (-1 / 3)), 0.02) <= -Z).all(axis=1).mean()
    )
    assert passed == pytest.approx(0.7, abs=0.03)
    assert items_needed(0.02, 0.04, languages=1, power=0.7) < n


@pytest.mark.parametrize(("languages", "power"), [(1, 0.8), (22, 0.99), (1000, 0.99)])
def test_a_plan_for_many_languages_keeps_its_promise(languages: int, power: float) -> None:
    """The chance that one of them fails is far below what a simulation sees."""
    n = items_needed(0.05, 0.04, languages, power)
    lost, won = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    each = binom.pmf(lost + won, n, 0.04) * binom.pmf(lost, lost + won, 0.5)
    passing = score(counted(lost, won, n).with_effect(1 + 0.4 * n ** (-1 / 3)), 0.05) <= -Z
    assert power <= float(each[passing].sum()) ** languages < power + 0.03


def test_the_most_powerful_test_is_not_far() -> None:
    """4% of 1,000 answers change: no fall or one of a point, told apart by the likelihood ratio."""
    lost, won = np.arange(100)[:, None], np.arange(100)[None, :]

    def chances(losing: float, winning: float):
        return (binom.pmf(lost, 1000, losing) * binom.pmf(won, 1000 - lost, winning / (1 - losing))).ravel()

    fallen, same = chances(0.025, 0.015), chances(0.02, 0.02)
    order = np.argsort(-same / fallen)
    level = np.cumsum(fallen[order])
    best = float(np.interp(0.05, level, np.cumsum(same[order])))
    passes = float(same[(score(counted(lost, won, 1000), 0.01) <= -Z).ravel()].sum())
    assert best == pytest.approx(0.484, abs=0.001)  # of which docs/ci.md speaks
    assert best - 0.06 < passes < best
