"""Tests whether a score fell, from its items before and after: exact test, standard error, Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_RADEMACHER = 1 / (2 * math.erfc(1))  # 1 / (4 P(Z >= sqrt 2)) = 3.179
_ZERO = 1e-12  # rounding of shares that cancel


def fall_p(gaps: npt.NDArray[np.float64]) -> float:
    """One-sided p of the sum of paired differences under random signs.

    Differences of right and wrong answers have one size: the test is McNemar's, exact. Others get an upper bound of the
    exact p, ``c P(Z >= z)`` with ``z = -sum(g) / sqrt(sum(g^2))`` and ``c = 3.179``, which
    holds for any sizes and any number of them (Bentkus & Dzindzalieta 2015, a tight Gaussian bound for weighted sums of
    Rademacher random variables). So p may be as small as a correction for many comparisons requires.

    Args:
        gaps: (n,), after minus before, item by item.
    """
    moved = gaps[np.abs(gaps) > _ZERO]
    if len(moved) == 0:
        return 1.0
    sizes = np.abs(moved)
    if sizes.max() - sizes.min() <= 1e-9 * sizes.max():
        from scipy.stats import binomtest

        return float(binomtest(int((moved < 0).sum()), len(moved), alternative="greater").pvalue)
    z = -float(moved.sum()) / math.sqrt(float(moved @ moved))
    return min(1.0, _RADEMACHER * math.erfc(z / math.sqrt(2)) / 2)


def standard_error(gaps: npt.NDArray[np.float64]) -> float:
    """Standard error of the sum of ``gaps`` (n,), as a sample of items."""
    n = len(gaps)
    return math.sqrt(n / (n - 1) * float(np.square(gaps - gaps.mean()).sum())) if n > 1 else 0.0


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): rejecting those below alpha makes any error with probability alpha at most.

    This holds under any dependence, such as that of languages of one text and their mean.
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(order))
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * np.asarray(p, np.float64)[order]), 1)
    return [float(value) for value in adjusted]
