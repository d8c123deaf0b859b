"""Rank correlation as a mean over pairs, so that two correlations can be compared pair by pair."""

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, spearmanr


def spearman_shares(x: npt.NDArray[np.number], y: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
    r"""Each pair's share in Spearman's correlation: their mean is the correlation, their spread its error.

    The shares are :math:`\rho + \psi_i`, where :math:`\psi` is the influence function of :math:`12 E[F(x) G(y)] - 3`
    (Hoeffding's projection; F and G are the distribution functions), with mean zero. Their standard error is that of
    the correlation in large samples, and the difference of two models' shares gives that of a paired difference.

    Args:
        x: (n,) one score of each pair; ties have their mean rank.
        y: (n,) the other.

    Returns:
        (n,), float64; nan where either score does not vary, as the correlation is.
    """
    n = len(x)
    f, g = ((rankdata(scores) - 0.5) / n for scores in (x, y))
    correlation = float(spearmanr(x, y).statistic) if np.ptp(x) and np.ptp(y) else np.nan
    influence = 12 * (f * g + _mean_above(f, g) + _mean_above(g, f))
    # Ties make ranks vary less, and the correlation divides by the variances that remain.
    influence *= 1 / (12 * float(np.sqrt(f.var() * g.var()))) if np.isfinite(correlation) else np.nan
    shares: npt.NDArray[np.float64] = correlation + influence - influence.mean()
    return shares


def _mean_above(scores: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each i the mean over all j of values_j where scores_j > scores_i, half of it where they are equal."""
    order = np.argsort(scores, kind="stable")
    ordered, total = scores[order], np.concatenate([[0.0], np.cumsum(values[order])])
    first, last = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    sums: npt.NDArray[np.float64] = total[-1] - (total[first] + total[last]) / 2
    return sums / len(scores)
