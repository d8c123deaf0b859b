"""95% intervals of differences, and intervals of ranks, from outcomes by sentence.

A model's score on a task is the sum of its sentences' shares: the mean over subsets of the mean over sentences.
Sentence i of every subset is one unit, because multi-parallel text says the same in all languages; the same
sentence in many language pairs is not more evidence.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from xalign_models.results.significance import ALPHA, holm

Z = 1.959964
"""Two-sided 95% quantile of the normal distribution."""


def standard_error(gaps: npt.NDArray[np.float64]) -> float:
    """Standard error of the sum of ``gaps`` (n,), as a sample of items; 0 for fewer than two."""
    n = len(gaps)
    return math.sqrt(n / (n - 1) * float(np.square(gaps - gaps.mean()).sum())) if n > 1 else 0.0


def half_width(gaps: npt.NDArray[np.float64]) -> float:
    """Half the width of the 95% interval of the sum of paired differences (n,); infinite for fewer than two.

    It is the normal limit of the bootstrap over sentences.
    """
    return Z * standard_error(gaps) if len(gaps) > 1 else math.inf


def rank_intervals(shares: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Best and worst plausible rank of each model, from 1, by each sentence's share (models, n) in its score.

    All pairs of models are compared by the sign-flip test in its normal limit, with Holm's correction for their number.
    A model's best rank is one more than the number of models that are better beyond chance; its worst rank is the
    number of models less those that are worse beyond chance.
    """
    models, scores = len(shares), shares.sum(axis=1)
    products = shares @ shares.T
    squares = np.diag(products)
    variances = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0)
    ahead = scores[:, None] - scores[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(np.abs(ahead) > 1e-12, np.abs(ahead) / np.sqrt(variances), 0.0)
    rows, columns = np.triu_indices(models, k=1)
    p_values = [math.erfc(value / math.sqrt(2)) for value in z[rows, columns]]
    sure = np.zeros((models, models), dtype=bool)
    sure[rows, columns] = np.array(holm(p_values)) < ALPHA
    sure |= sure.T
    better = (sure & (ahead < 0)).sum(axis=1)
    worse = (sure & (ahead > 0)).sum(axis=1)
    return [(1 + int(above), models - int(below)) for above, below in zip(better, worse, strict=True)]
