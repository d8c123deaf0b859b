"""Whether a difference between two models could be chance: a paired test over sentences."""

from __future__ import annotations

import logging
import math
import re
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xalign_models.harness.reading import MAIN, TaskScores

logger = logging.getLogger(__name__)

Hits = dict[str, npt.NDArray[np.bool_]]

ALPHA = 0.05
MOST_TESTED = 5000
"""A result of more subsets is not tested: reading its items would take seconds."""


class Items:
    """Outcomes item by item, as hits: whether the gold was among the first k.

    Args:
        metric: ``precision_at_k``; ``main_score`` of ranks is ``precision_at_1``. Others cannot be tested.
    """

    def __init__(self, metric: str) -> None:
        match = re.fullmatch(r"precision_at_(\d+)", "precision_at_1" if metric == MAIN else metric)
        self.metric, self.k = metric, int(match[1]) if match else None
        self._loaded: dict[tuple[str, str], Hits] = {}

    def gaps(self, table: TaskScores, base: TaskScores, subsets: Sequence[str]) -> npt.NDArray[np.float64] | None:
        """Each sentence's share (n,) in the macro difference, which is their sum; None if the items do not say.

        Sentence i is taken to be the same in all subsets, as it is in multi-parallel text; where subsets have sentences
        of their own, this merely puts independent outcomes together.
        """
        mine, theirs = self.hits(table), self.hits(base)
        if any(s not in mine or s not in theirs or len(mine[s]) != len(theirs[s]) for s in subsets):
            return None
        total = np.zeros(max(len(mine[subset]) for subset in subsets))
        for subset in subsets:
            n = len(mine[subset])
            total[:n] += (mine[subset].astype(np.int8) - theirs[subset].astype(np.int8)) / (n * len(subsets))
        return total

    def hits(self, table: TaskScores) -> Hits:
        """By subset; empty unless there are ranks that give the scores."""
        key = table.model, table.task
        if key not in self._loaded:
            self._loaded[key] = self._load(table)
        return self._loaded[key]

    def _load(self, table: TaskScores) -> Hits:
        path, values = table.folder / "items" / f"{table.task}.npz", table.values(self.metric)
        if self.k is None or not path.is_file() or len(values) > MOST_TESTED:
            return {}
        try:
            with path.open("rb") as handle, np.load(handle) as file:
                ranks = {subset: file[subset] for subset in sorted(values.keys() & set(file.files))}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            logger.warning("%s is damaged (%s) and its differences are not tested.", path, type(error).__name__)
            return {}
        return {
            subset: rank <= self.k
            for subset, rank in ranks.items()
            if rank.ndim == 1 and rank.dtype.kind in "iu" and abs(np.mean(rank <= self.k) - values[subset]) < 1e-5
        }


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
