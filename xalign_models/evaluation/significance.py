"""Whether a difference between two models could be chance: a paired test over sentences."""

from __future__ import annotations

import logging
import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.evaluation.results import MAIN, TaskScores

logger = logging.getLogger(__name__)

Outcomes = dict[str, npt.NDArray[np.bool_ | np.floating]]

ALPHA = 0.05
MOST_TESTED = 5000
"""A result of more subsets is not tested: reading its items would take seconds."""


class Items:
    """Outcomes item by item, whose mean is the score.

    Whether the gold was among the first k, whether the label was right, or a number such as a question's AP.

    Args:
        metric: ``precision_at_k`` or ``main_score``, which of ranks is ``precision_at_1``. Others cannot be tested.
    """

    def __init__(self, metric: str) -> None:
        match = re.fullmatch(r"precision_at_(\d+)", "precision_at_1" if metric == MAIN else metric)
        self.metric, self.k = metric, int(match[1]) if match else None
        self._loaded: dict[tuple[str, str], Outcomes] = {}

    def gaps(self, table: TaskScores, base: TaskScores, subsets: Sequence[str]) -> npt.NDArray[np.float64] | None:
        """Each sentence's share (n,) in the macro difference, which is their sum; None if the items do not say.

        Sentence i is taken to be the same in all subsets, as it is in multi-parallel text; where subsets have sentences
        of their own, this merely puts independent outcomes together.
        """
        mine, theirs = self.outcomes(table), self.outcomes(base)
        if any(s not in mine or s not in theirs or len(mine[s]) != len(theirs[s]) for s in subsets):
            return None
        total = np.zeros(max(len(mine[subset]) for subset in subsets))
        for subset in subsets:
            n = len(mine[subset])
            total[:n] += (mine[subset].astype(np.float64) - theirs[subset]) / (n * len(subsets))
        return total

    def outcomes(self, table: TaskScores) -> Outcomes:
        """By subset; empty unless there are items that give the scores."""
        key = table.model, table.task
        if key not in self._loaded:
            self._loaded[key] = self._load(table)
        return self._loaded[key]

    def _load(self, table: TaskScores) -> Outcomes:
        path, values = table.folder / "items" / f"{table.task}.npz", table.values(self.metric)
        if self.k is None or not path.is_file() or len(values) > MOST_TESTED:
            return {}
        try:
            with path.open("rb") as handle, np.load(handle) as file:
                items = {subset: _outcomes(file[subset], self.k) for subset in sorted(values.keys() & set(file.files))}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            logger.warning("%s is damaged (%s) and its differences are not tested.", path, type(error).__name__)
            return {}
        return {
            subset: found
            for subset, found in items.items()
            if found is not None and abs(np.mean(found) - values[subset]) < 1e-5
        }


def _outcomes(items: npt.NDArray[Any], k: int) -> npt.NDArray[np.bool_ | np.floating] | None:
    """Of ranks, of pairs of a predicted and a true label, or the numbers themselves; None of anything else."""
    if items.ndim == 2 and items.shape[1] == 2 and items.dtype.kind == "U":
        return np.asarray(items[:, 0] == items[:, 1])
    if items.ndim == 1 and items.dtype.kind in "iu":
        return np.asarray(items <= k)
    return items if items.ndim == 1 and items.dtype.kind == "f" else None


def sign_flip_test(gaps: npt.NDArray[np.float64]) -> float:
    """Two-sided p of a sum of paired differences under the null that each could as well have the other sign.

    By the normal limit of the randomisation distribution, whose variance is the sum of squares; for 0/1 outcomes of one
    subset this is McNemar's test. Below 50 non-zero differences the distribution itself is taken (exact up to 13).
    """
    moved = gaps[gaps != 0]
    if len(moved) == 0:
        return 1.0
    if len(moved) >= 50:
        return math.erfc(abs(float(moved.sum())) / math.sqrt(2 * float(moved @ moved)))
    from scipy.stats import permutation_test

    test = permutation_test((moved,), np.sum, permutation_type="samples", vectorized=True, n_resamples=9999, rng=0)
    return float(test.pvalue)
