"""Share of the relation between two spaces that a rotation explains, and the affine map that the data determine."""

from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import affine_lsq, procrustes

CUT = 1e-2
"""Fraction of the mean variance; along directions with less, :func:`determined_map` follows the rotation."""


@dataclass(frozen=True)
class Explained:
    """Held-out explained variance R2 = 1 - sum |f(x) - y|^2 / sum |y - mean|^2 of maps from x to y, at least 0.

    Attributes:
        rotation: R2 of the centred rotation.
        affine: R2 of the affine map.
        weight: The affine map's W (d, d).
        shift: The affine map's b (d,).
    """

    rotation: float
    affine: float
    weight: Float64
    shift: Float64

    @property
    def share(self) -> float:
        """R2 of the rotation over that of the affine map, in [0, 1]; 0 if neither explains anything."""
        return min(1.0, self.rotation / self.affine) if self.affine else 0.0


def explained(fit: tuple[AnyFloats, AnyFloats], held: tuple[AnyFloats, AnyFloats]) -> Explained:
    """Fit both maps from x to y and score them on held-out pairs.

    The affine map is least squares with the ridge of the lowest leave-one-out error.

    Args:
        fit: Row-aligned x and y, (n, d) each.
        held: The same of other pairs, (m, d) each.
    """
    x, y = (side.astype(np.float64) for side in fit)
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    rotation = np.asarray(procrustes(x - x_mean, y - y_mean), dtype=np.float64)
    weight, shift = ridge_by_leave_one_out(x, y)
    total = np.square(held[1] - held[1].mean(axis=0)).sum()

    def r2(w: Float64, b: Float64) -> float:
        squares = np.square(held[0] @ w + b - held[1]).sum()
        return max(0.0, float(1 - squares / total)) if total else 0.0

    return Explained(r2(rotation, y_mean - x_mean @ rotation), r2(weight, shift), weight, shift)


def determined_map(x: AnyFloats, y: AnyFloats) -> Float64:
    """W (d, d) of the centred least-squares map, equal to the rotation along directions of low variance.

    An encoder that ends in a LayerNorm has directions without variance, where least squares is arbitrary. Here it is
    solved along the principal directions of x with a variance of at least :data:`CUT` of the mean.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, d).
    """
    x, y = x - x.mean(axis=0, dtype=np.float64), y - y.mean(axis=0, dtype=np.float64)
    values, directions = np.linalg.eigh(x.T @ x)
    principal = directions[:, values >= CUT * values.mean()]
    rotation = procrustes(x, y)
    weight: Float64 = rotation + principal @ (affine_lsq(x @ principal, y)[0] - principal.T @ rotation)
    return weight
