"""Tests of paired differences, item by item, and Holm's correction.

A difference of two scores is the sum of the items' shares in it. Items that are the same for both models say nothing.
Neighbouring items may move together, such as sentences of one document: :func:`design_effect` measures how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Items = npt.NDArray[np.float32] | Array

ALPHA = 0.05
ZERO = 1e-12
"""Differences below this are rounding of shares that cancel."""
MANY = 50
"""Number of non-zero differences from which on the normal limit is used."""
_STEPS = 4000
_PRIOR = 10  # changes


def windows(items: Items) -> Array:
    """Sums of all windows of w neighbours in (..., n) items, with zeros beyond both ends, divided by ``sqrt(w)``.

    w is one more than the cube root of n. The sum of the squares is Newey and West's (1987) estimate of the variance of
    the items' sum, if the items have the mean zero.
    """
    n = items.shape[-1]
    width = 1 + round(n ** (1 / 3))
    sums = np.empty((*items.shape[:-1], n + width - 1))
    np.cumsum(items, axis=-1, out=sums[..., :n])
    sums[..., n:] = sums[..., n - 1 : n]
    sums[..., width:] -= sums[..., : n - 1].copy()
    sums /= math.sqrt(width)
    return sums


def design_effect(items: Items) -> Array:
    """How many of n items count as one, as neighbours depend on each other: at least 1.

    It is the variance of the sum of (..., n) items with the mean zero, by :func:`windows`, over the sum of their
    squares. Independent items have an effect of about ``1 + 0.4 n ** (-1 / 3)`` on average, by chance.
    """
    return effect_of_squares(*(np.einsum("...i,...i->...", rows, rows) for rows in (windows(items), items)))


def effect_of_squares(together: Array, own: Array) -> Array:
    """The design effect by the sums of squares of :func:`windows` and of the items."""
    with np.errstate(divide="ignore", invalid="ignore"):
        effect: Array = np.where(own > ZERO**2, np.maximum(together / own, 1), 1)
    return effect


def effect_of_changes(changes: Array, outcomes: Items) -> Array:
    """:func:`design_effect` of the changes of (..., n) outcomes, both with the mean zero.

    Few changes cannot show how they depend on each other, so the effect of the outcomes before them counts like that of
    ten more changes. Changes of different sizes count as fewer.
    """
    squared = changes * changes
    squares, cubes = squared.sum(axis=-1), np.einsum("...i,...i->...", np.abs(changes), squared)
    number = squares**3 / np.maximum(cubes, ZERO**3) ** 2
    effects = number * design_effect(changes) + _PRIOR * design_effect(outcomes)
    mean: Array = effects / (number + _PRIOR)
    return mean


def sign_flip_test(gaps: Array, effect: float = 1.0) -> float:
    """Two-sided p of a sum of paired differences under random signs.

    From 50 non-zero differences on, the normal limit of the randomisation distribution, whose variance is the sum of
    squares; for 0/1 outcomes of one subset this is McNemar's test. Below, the distribution itself: sizes are rounded to
    1/4000 of the largest, and the convolution gives the probability of every sum. A single difference has p = 1.
    If ``effect`` items count as one, p is at least that of the normal limit with as many times the variance.
    """
    moved = gaps[np.abs(gaps) > ZERO]
    if len(moved) == 0:
        return 1.0
    limit = math.erfc(abs(float(moved.sum())) / math.sqrt(2 * effect * float(moved @ moved)))
    if len(moved) >= MANY:
        return limit
    sizes = np.rint(_STEPS * np.abs(moved) / np.abs(moved).max()).astype(np.int64)
    sizes //= np.gcd.reduce(sizes)
    ways = np.zeros(int(sizes.sum()) + 1)  # to reach each sum by the sizes that have a plus
    ways[0] = 1
    for size, end in zip(sizes, np.cumsum(sizes) + 1, strict=True):
        ways[size:end] += ways[: end - size]
    distance = np.abs(2 * np.arange(len(ways)) - len(ways) + 1)
    extreme = distance >= abs(2 * int(sizes[moved > 0].sum()) - len(ways) + 1)
    exact = min(1.0, float(ways[extreme].sum() / 2.0 ** len(sizes)))
    return exact if effect == 1 else max(exact, limit)


def sign_flip_tests(gaps: Array, effects: Array) -> Array:
    """:func:`sign_flip_test` of each row of (m, n) paired differences, with (m,) design effects."""
    from scipy.special import erfc

    kept = np.where(moved := np.abs(gaps) > ZERO, gaps, 0)
    squares = np.einsum("ij,ij->i", kept, kept) * effects
    with np.errstate(invalid="ignore"):
        p: Array = erfc(np.abs(kept.sum(axis=1)) / np.sqrt(2 * squares))
    for row in np.flatnonzero(np.count_nonzero(moved, axis=1) < MANY):
        p[row] = sign_flip_test(gaps[row], float(effects[row]))
    return p


def holm(p: npt.ArrayLike, weights: Sequence[float] | None = None) -> Array:
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
