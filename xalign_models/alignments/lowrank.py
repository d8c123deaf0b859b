"""LowRank: an affine map of low rank between each language and the pivot (Drift-Adapter, Vejendla, 2025)."""

from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.pivot import PivotAlignment
from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.configuration import Count
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register


def low_rank(x: AnyFloats, y: AnyFloats, rank: int) -> tuple[Float64, Float64]:
    """Affine least squares of bounded rank: U, V and b that minimise |x U V^T + b - y|^2 + lambda |U V^T|^2.

    Reduced-rank regression in closed form, with the lambda of the full map. Drift-Adapter (arXiv 2509.23471) descends
    the gradient of this error instead.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, m).
        rank: Largest rank of the map.

    Returns:
        W = U V^T (d, m) and b (m,).
    """
    weight, _ = ridge_by_leave_one_out(x, y)
    x, y = x.astype(np.float64), y.astype(np.float64)
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    # The squares of fitted values and penalty, W^T (X^T X + lambda I) W, equal W^T X^T Y for any lambda.
    _, directions = np.linalg.eigh(weight.T @ ((x - x_mean).T @ (y - y_mean)))
    leading = directions[:, max(0, directions.shape[1] - rank) :]
    weight = weight @ leading @ leading.T
    return weight, y_mean - x_mean @ weight


@register.alignment
@dataclass(eq=False)
class LowRank(PivotAlignment):
    """``y = x + x U_l V_l^T + b_l``, fitted by least squares: the map differs from the identity by a low rank.

    Drift-Adapter's ``y = x U V^T + b`` between two models confines y to as many dimensions as the rank. The pivot's
    embeddings are not confined, so a map between languages keeps x and adds the product.
    """

    method = "lowrank"
    by_language = True
    shrunk = True  # by the ridge

    pivot: str = "eng-Latn"
    """The language that all others are mapped onto."""
    rank: Count = 64
    """Largest rank of the difference from the identity; the paper's default."""

    def _solve(self, x: AnyFloats, pivot: AnyFloats) -> tuple[Float64, Float64]:
        weight, shift = low_rank(x, pivot - x, self.rank)
        return weight + np.eye(len(weight)), shift
