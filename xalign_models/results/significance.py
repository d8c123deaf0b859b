"""Tests of paired differences, item by item, and Holm's correction.

A difference of two scores is the sum of the items' shares in it. Items that are the same for both models say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
_RADEMACHER = 1 / (2 * math.erfc(1))  # 1 / (4 P(Z >= sqrt 2)) = 3.179
ZERO = 1e-12
"""Differences below this are rounding of shares that cancel."""
_MANY = 50
_STEPS = 4000


def sign_test(better: int, worse: int) -> float:
    """One-sided p, exact, of as many better ones or more among items that are better or worse with equal chance."""
    from scipy.stats import binomtest

    return float(binomtest(better, better + worse, alternative="greater").pvalue) if better + worse else 1.0


def fall_p(gaps: npt.NDArray[np.float64]) -> float:
    """One-sided p of the sum of paired differences (n,), after minus before, under random signs.

    Differences of right and wrong answers have one size: the test is McNemar's, exact. Others get an upper bound of the
    exact p, ``c P(Z >= z)`` with ``z = -sum(g) / sqrt(sum(g^2))`` and ``c = 3.179``, which holds for any sizes and any
    number of them (Bentkus & Dzindzalieta 2015, a tight Gaussian bound for weighted sums of Rademacher random
    variables). So p may be as small as a correction for many comparisons requires.
    """
    moved = gaps[np.abs(gaps) > ZERO]
    if len(moved) == 0:
        return 1.0
    sizes = np.abs(moved)
    if sizes.max() - sizes.min() <= 1e-9 * sizes.max():
        return sign_test(int((moved < 0).sum()), int((moved > 0).sum()))
    z = -float(moved.sum()) / math.sqrt(float(moved @ moved))
    return min(1.0, _RADEMACHER * math.erfc(z / math.sqrt(2)) / 2)


def sign_flip_test(gaps: npt.NDArray[np.float64]) -> float:
    """Two-sided p of a sum of paired differences under random signs.

    From 50 non-zero differences on, the normal limit of the randomisation distribution, whose variance is the sum of
    squares; for 0/1 outcomes of one subset this is McNemar's test. Below, the distribution itself: sizes are rounded to
    1/4000 of the largest, and the convolution gives the probability of every sum. A single difference has p = 1.
    """
    moved = gaps[np.abs(gaps) > ZERO]
    if len(moved) == 0:
        return 1.0
    if len(moved) >= _MANY:
        return math.erfc(abs(float(moved.sum())) / math.sqrt(2 * float(moved @ moved)))
    sizes = np.rint(_STEPS * np.abs(moved) / np.abs(moved).max()).astype(np.int64)
    sizes //= np.gcd.reduce(sizes)
    chances = np.ones(1)  # of each sum of the sizes that have a plus
    for size in sizes:
        chances = (np.pad(chances, (0, size)) + np.pad(chances, (size, 0))) / 2
    total = int(sizes.sum())
    distance = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, float(chances[distance >= abs(2 * int(sizes[moved > 0].sum()) - total)].sum()))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): rejecting those below alpha makes any error with probability alpha at most.

    This holds under any dependence, such as that of languages of one text and their mean.
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(order))
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * np.asarray(p, np.float64)[order]), 1)
    return [float(value) for value in adjusted]
