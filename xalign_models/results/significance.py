"""A paired test over sentences, whether a difference between two models may be chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from xalign_models.results.items import TOLERANCE, Outcomes, outcomes_path, read_outcomes
from xalign_models.results.reading import TaskScores

ALPHA = 0.05
_ZERO = 1e-12
_MANY = 50
_STEPS = 4000


class Items:
    """Outcomes by item, whose mean is the score.

    Args:
        metric: The score. Only the main score, or one equal to it, can be tested, as others have no outcomes.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._loaded: dict[tuple[str, str], Outcomes] = {}
        self._shares: dict[tuple[str, str, tuple[str, ...]], npt.NDArray[np.float64]] = {}

    def gaps(self, table: TaskScores, base: TaskScores, subsets: Sequence[str]) -> npt.NDArray[np.float64] | None:
        """Each sentence's share (n,) in the macro difference, which is their sum; None without outcomes.

        Sentence i counts as the same in all subsets, as in multi-parallel text; if subsets have different sentences,
        this only groups independent outcomes.
        """
        hits, base_hits = self.outcomes(table), self.outcomes(base)
        if any(s not in hits or s not in base_hits or len(hits[s]) != len(base_hits[s]) for s in subsets):
            return None
        gaps = self.shares(table, subsets) - self.shares(base, subsets)
        gaps[np.abs(gaps) < _ZERO] = 0  # equal outcomes
        return gaps

    def shares(self, table: TaskScores, subsets: Iterable[str]) -> npt.NDArray[np.float64]:
        """(n,) each sentence's share in the mean over ``subsets``, all of which have outcomes; it is their sum."""
        key = table.model, table.task, tuple(sorted(subsets))
        if key not in self._shares:
            chosen = [self.outcomes(table)[subset] for subset in key[-1]]
            total = np.zeros(max(map(len, chosen)))
            for outcomes in chosen:
                total[: len(outcomes)] += outcomes / (len(outcomes) * len(chosen))
            self._shares[key] = total
        return self._shares[key]

    def outcomes(self, table: TaskScores) -> Outcomes:
        """Outcomes by subset, if their mean is the score."""
        key = table.model, table.task
        if key not in self._loaded:
            values = table.values(self.metric)
            recorded = read_outcomes(outcomes_path(table.folder, table.task))
            self._loaded[key] = {
                subset: array
                for subset, array in recorded.items()
                if subset in values and abs(float(np.mean(array)) - values[subset]) < TOLERANCE
            }
        return self._loaded[key]


def sign_flip_test(gaps: npt.NDArray[np.float64]) -> float:
    """Two-sided p of a sum of paired differences under random signs.

    From 50 non-zero differences on, the normal limit of the randomisation distribution, whose variance is the sum of
    squares; for 0/1 outcomes of one subset this is McNemar's test. Below, the distribution itself: sizes are rounded to
    1/4000 of the largest, and the convolution gives the probability of every sum. A single difference has p = 1.
    """
    moved = gaps[gaps != 0]
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
