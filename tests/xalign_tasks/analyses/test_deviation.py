"""The bounds on random discrete distributions: the safe one always holds, the printed one does not."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from xalign_tasks.analyses.deviation import bound_printed, bound_safe

Array = npt.NDArray[np.float64]


def deviation(p: Array, q: Array, features: Array, away: Array, epsilon_1: float) -> tuple[float, float, float]:
    """(||z - z*||, eps2, C) for p(s|x) = p, p(s|y) = q, phi(s) the rows of ``features``, g(x) = h(y) + eps1 away."""
    h, ideal = q @ features, p @ features
    g = h + epsilon_1 * away / max(np.linalg.norm(away), 1e-300)
    z = float(np.hypot(np.linalg.norm(g - ideal), np.linalg.norm(h - ideal)))
    divergence = float(np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0)))
    return z, max(0.0, divergence), float(np.linalg.norm(features, axis=1).max())


def cases(number: int) -> list[tuple[float, float, float, float]]:
    """(deviation, eps1, eps2, C): meanings, features and paths at random, half of the paths led away on purpose."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(number):
        meanings, d = rng.integers(2, 7), rng.integers(1, 5)
        p = rng.dirichlet(np.full(meanings, 10.0 ** rng.uniform(-1, 1)))
        q = rng.dirichlet(np.full(meanings, 10.0 ** rng.uniform(-1, 1))) if index % 2 else p + 0
        q = (1 - (w := rng.uniform(0.001, 0.5))) * q + w * rng.dirichlet(np.ones(meanings))
        features = rng.standard_normal((meanings, d)) * 10 ** rng.uniform(-1, 1)
        if index % 3 == 0:  # two opposite features: Pinsker and the triangle inequality are tight
            features = np.sign(rng.standard_normal((meanings, 1))) * rng.standard_normal((1, d))
        away = (q - p) @ features if index % 2 == 0 else rng.standard_normal(d)
        epsilon_1 = 0.0 if index % 5 == 0 else 10 ** rng.uniform(-3, 1)
        z, epsilon_2, c = deviation(p, q, features, away, epsilon_1)
        found.append((z, epsilon_1, epsilon_2, c))
    return found


def test_safe_bound_is_never_violated_while_the_printed_one_is() -> None:
    safe = printed = 0
    for z, epsilon_1, epsilon_2, c in cases(20_000):
        tolerance = 1e-9 * (1 + z)
        safe += z > bound_safe(epsilon_1, epsilon_2, c) + tolerance
        printed += z > bound_printed(epsilon_1, epsilon_2, c) + tolerance
    assert safe == 0
    assert printed > 100


@pytest.mark.parametrize("shift", [0.1, 0.01, 0.001])
def test_counterexample_to_the_printed_bound(shift: float) -> None:
    """Two meanings with features 1 and -1; the paths agree (eps1 = 0) on a translation that is off by ``shift``."""
    p, q = np.array([0.5 + shift, 0.5 - shift]), np.array([0.5, 0.5])
    z, epsilon_2, c = deviation(p, q, np.array([[1.0], [-1.0]]), np.zeros(1), 0.0)
    assert z == pytest.approx(2 * math.sqrt(2) * shift)
    ratio = z / bound_printed(0.0, epsilon_2, c)
    assert ratio > 1.4 or shift == 0.1
    assert 1 < ratio < math.sqrt(2)
    assert z <= bound_safe(0.0, epsilon_2, c)
    assert z / bound_safe(0.0, epsilon_2, c) > 0.99  # and the safe one is tight


def test_formulas_and_the_papers_instance() -> None:
    assert bound_printed(0.19, 0.23, 0.6867, 0.034) == pytest.approx(0.034 * 0.19 + 0.0330 * math.sqrt(0.23), abs=1e-5)
    assert bound_safe(0.19, 0.23, 0.6867, 0.034) == pytest.approx(0.034 * 0.19 + 0.0467 * math.sqrt(0.23), abs=1e-5)
    assert bound_safe(0, 0, 5) == bound_printed(0, 0, 5) == 0
