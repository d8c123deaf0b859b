"""Score tests of a paired fall against a margin, from the outcomes of the same items before and after.

A score is the sum of its items' shares; the fall is the sum of what each item lost. Tango (1998, Equivalence test and
confidence interval for the difference in proportions for the paired-sample design) tests right and wrong answers with
the variance under the margin, which is above zero even when no item moved. Other items, such as average precisions
and means over languages that share sentences, need the size of the moves that nobody has seen: see :func:`score`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = float | npt.NDArray[Any]
Z = 1.6448536269514722
"""One-sided 95% quantile of the normal distribution."""
_HALVINGS = 40  # of an interval of at most two, down to 2e-12
_EFFECT = 0.4  # times n ** (-1 / 3): the gate's mean design effect of independent items, less 1
_TAIL = 1e-12  # probability of the counts that a plan leaves out at either end


class Fall(NamedTuple):
    """Moments of the items' shares in a fall; numbers, or arrays for many falls.

    Attributes:
        total: The fall, old minus new, as a fraction; the sum of the shares.
        squares: Sum of the squared shares.
        cubes: Sum of the cubed absolute shares.
        share: Share of an item that goes from right to wrong in every subset: 1 / n for subsets of n items.
    """

    total: Numbers
    squares: Numbers
    cubes: Numbers
    share: Numbers

    def with_effect(self, effect: Numbers) -> Fall:
        """The same fall if ``effect`` items count as one: each of fewer items has a larger share.

        See Rao and Scott 1992, A simple method for the analysis of clustered binary data.
        """
        total, squares, cubes, share = self
        return Fall(total, squares * effect, cubes * effect**2, share * effect)


def fall_of(gaps: npt.NDArray[np.float64], share: float) -> Fall:
    """The fall by each item's share (n,) in the difference new minus old."""
    squares = gaps * gaps
    return Fall(-float(gaps.sum()), float(squares.sum()), float(np.abs(gaps) @ squares), share)


def counted(lost: Numbers, won: Numbers, n: Numbers) -> Fall:
    """The fall of right and wrong answers, by how many of n items were lost and won."""
    return Fall((lost - won) / n, (lost + won) / n**2, (lost + won) / n**3, 1 / n)


def score(fall: Fall, margin: Numbers) -> npt.NDArray[np.float64]:
    """The score of a fall against a margin, a normal z: above zero where the fall is larger.

    ``z = sign(f - m) max(|f - m| - s / 2, 0) / sqrt(V)``, where ``s / 2`` is the continuity correction. For right and
    wrong answers, s is the share of an item, and V the larger of Tango's variance (the maximum likelihood estimate
    under ``f = m``) and the sum of squares about the margin, which keeps the upper tail below its level. For other
    items, V is that sum plus ``s |f - m|``: the missing fall may come in moves of the size s, the ratio of the third
    and second moments of the moves and of one more move of a whole item.
    """
    total, squares, cubes, share = fall
    about = squares - 2 * margin * total * share + margin**2 * share
    step = (cubes + share**3) / (squares + share**2)
    moved = squares / share  # for right and wrong answers: as a fraction of the items
    won = (moved - total) / 2
    linear = moved * (1 + margin) - 2 * margin * (1 + won)
    rate = (linear + np.sqrt(np.maximum(linear**2 + 8 * won * margin * (1 - margin), 0))) / 4
    tango = share * (2 * rate + margin - margin**2)
    whole = np.abs(squares * share - cubes) <= 1e-9 * cubes
    distance = total - margin
    variance = np.where(whole, np.maximum(about, tango), about + np.abs(distance) * step)
    return np.sign(distance) * np.maximum(np.abs(distance) - step / 2, 0) / np.sqrt(np.maximum(variance, 1e-30))


def p_of_fall(fall: Fall, margin: Numbers) -> npt.NDArray[np.float64]:
    """One-sided p of a fall that is no larger than the margin."""
    from scipy.special import erfc

    p: npt.NDArray[np.float64] = erfc(score(fall, margin) / math.sqrt(2)) / 2
    return p


def interval(fall: Fall) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The 90% interval of a fall: the margins that :func:`score` cannot reject at 5% on either side, by bisection."""
    ends = []
    for side in (1, -1):  # the lower end lies where the score is Z, the upper one where it is -Z
        inner, outer = np.asarray(fall.total, np.float64), -side * np.maximum(1.0, np.abs(fall.total))
        far = side * score(fall, outer) <= Z
        for _ in range(_HALVINGS):
            middle = (inner + outer) / 2
            beyond = side * score(fall, middle) > Z
            inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
        ends.append(np.where(far, -side * np.maximum(1.0, np.abs(fall.total)), outer))
    return ends[0], ends[1]


def items_needed(margin: float, churn: float, languages: int, power: float) -> int:
    """Items per language with which every language passes, with probability ``power``, where nothing fell.

    Args:
        margin: The fall to rule out, as a fraction.
        churn: Fraction of the answers that change, half of them to right and half to wrong.
        languages: Number of languages, of independent items; multiply the result by the design effect of others.
        power: Probability that all of them pass.
    """
    from scipy.stats import binom

    def passes(n: int) -> bool:
        effect = 1 + _EFFECT * n ** (-1 / 3)
        low, high = binom.ppf([_TAIL, 1 - _TAIL], n, churn)
        changed = np.arange(max(low, 0), high + 1)
        most, least = np.full(len(changed), -1.0), changed + 1  # lost answers that pass and that do not, by bisection
        for _ in range(n.bit_length() + 1):
            lost = (most + least) // 2
            passed = score(counted(lost, changed - lost, n).with_effect(effect), margin) <= -Z
            most, least = np.where(passed, lost, most), np.where(passed, least, lost)
        chance = binom.pmf(changed, n, churn) @ binom.cdf(most, changed, 0.5)
        return float(chance) ** languages >= power

    most = 1
    while not passes(most):
        most *= 2
    return 1 + bisect_left(range(1, most), True, key=passes)
