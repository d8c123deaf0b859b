"""Rank correlation as a mean over pairs, so that two correlations can be compared pair by pair."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from xalign_models.linalg.arrays import Float64


def spearman_shares(x: npt.NDArray[np.number], y: npt.NDArray[np.number]) -> Float64:
    r"""Each pair's share in Spearman's correlation: their mean is the correlation, their spread its error.

    The shares are :math:`\rho + \psi_i`, where :math:`\psi` is the influence function of :math:`12 E[F(x) G(y)] - 3`
    (Hoeffding's projection; F and G are the distribution functions), with mean zero. Their standard error is that of
    the correlation in large samples, and the difference of two models' shares gives that of a paired difference.

    Args:
        x: (n,) one score of each pair; ties get their mean rank.
        y: (n,) the other score.

    Returns:
        (n,), float64; nan if either score does not vary, like the correlation.
    """
    (f, above_f), (g, above_g) = _distribution(x), _distribution(y)
    spread = float(np.sqrt(f.var() * g.var())) if np.ptp(x) > 0 and np.ptp(y) > 0 else np.nan
    correlation = float(np.mean((f - 0.5) * (g - 0.5))) / spread
    # 12 is 1 / variance without ties; ties lower the variance, and the correlation divides by the lower one.
    influence = (f * g + above_f(g) + above_g(f)) / spread
    shares: Float64 = correlation + influence - influence.mean()
    return shares


def _distribution(scores: npt.NDArray[np.number]) -> tuple[Float64, Callable[[Float64], Float64]]:
    """The distribution function at each score (n,), half of it for equal scores, and a function of values (n,).

    The function returns, for each i, the mean over j of values_j if scores_j > scores_i, half of it if they are equal.
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)  # one sort

    def mean_above(values: Float64) -> Float64:
        sums = np.bincount(place, values)
        above: Float64 = np.cumsum(sums[::-1])[::-1] - sums / 2
        return above[place] / len(values)

    below: Float64 = np.cumsum(counts) - counts / 2
    return below[place] / len(scores), mean_above
