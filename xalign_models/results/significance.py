"""Tests of paired differences, item by item, and Holm's correction.

A difference of two scores is the sum of the items' shares in it. Items that are the same for both models say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
ZERO = 1e-12
"""Differences below this are rounding of shares that cancel."""
MANY = 50
"""Number of non-zero differences from which on the normal limit is used."""
_STEPS = 4000


def sign_flip_test(gaps: npt.NDArray[np.float64]) -> float:
    """Two-sided p of a sum of paired differences under random signs.

    From 50 non-zero differences on, the normal limit of the randomisation distribution, whose variance is the sum of
    squares; for 0/1 outcomes of one subset this is McNemar's test. Below, the distribution itself: sizes are rounded to
    1/4000 of the largest, and the convolution gives the probability of every sum. A single difference has p = 1.
    """
    moved = gaps[np.abs(gaps) > ZERO]
    if len(moved) == 0:
        return 1.0
    if len(moved) >= MANY:
        return math.erfc(abs(float(moved.sum())) / math.sqrt(2 * float(moved @ moved)))
    sizes = np.rint(_STEPS * np.abs(moved) / np.abs(moved).max()).astype(np.int64)
    sizes //= np.gcd.reduce(sizes)
    ways = np.zeros(int(sizes.sum()) + 1)  # to reach each sum by the sizes that have a plus
    ways[0] = 1
    for size, end in zip(sizes, np.cumsum(sizes) + 1, strict=True):
        ways[size:end] += ways[: end - size]
    distance = np.abs(2 * np.arange(len(ways)) - len(ways) + 1)
    extreme = distance >= abs(2 * int(sizes[moved > 0].sum()) - len(ways) + 1)
    return min(1.0, float(ways[extreme].sum() / 2.0 ** len(sizes)))


def sign_flip_tests(gaps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """:func:`sign_flip_test` of each row of (m, n) paired differences."""
    from scipy.special import erfc

    kept = np.where(moved := np.abs(gaps) > ZERO, gaps, 0)
    squares = np.einsum("ij,ij->i", kept, kept)
    with np.errstate(invalid="ignore"):
        p: npt.NDArray[np.float64] = erfc(np.abs(kept.sum(axis=1)) / np.sqrt(2 * squares))
    for row in np.flatnonzero(np.count_nonzero(moved, axis=1) < MANY):
        p[row] = sign_flip_test(gaps[row])
    return p


def holm(p: npt.ArrayLike, weights: Sequence[float] | None = None) -> npt.NDArray[np.float64]:
    """Adjusted p-values (Holm 1979): rejecting those below alpha makes any error with probability alpha at most.

    This holds under any dependence, such as that of languages of one text and their mean. It is the closed test of
    Bonferroni's, in which hypotheses share alpha by their ``weights``, by default equally.
    """
    p = np.asarray(p, np.float64)
    shares = np.ones(len(p)) if weights is None else np.asarray(weights, np.float64)
    ratios = p / shares
    order = np.argsort(ratios, kind="stable")
    adjusted = np.empty(len(order))
    remaining = np.cumsum(shares[order][::-1])[::-1]
    adjusted[order] = np.minimum(np.maximum.accumulate(remaining * ratios[order]), 1)
    return adjusted
