"""How far a linear map is from a rotation with dilation (Vasilyev et al., 2023, eqs. 11-20).

The paper's A multiplies column vectors; with row vectors ``y = x W`` it is W^T, so its *columns* A_j are the *rows* of
W. Both functions take W, as stored in the alignments' ``weights_``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.errors import AlignmentError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import affine_lsq, procrustes

THRESHOLD = math.cos(0.75 * math.pi / 2)
"""0.3827, |p| at 75% of a right angle."""


@dataclass(frozen=True)
class Orthogonality:
    """Aggregates of p_jk = A_j . A_k / (|A_j| |A_k|) over j != k; all are 0 for a rotation."""

    mean_abs: float
    """<|p|>, eq. 13."""
    std: float
    """sigma(p), population, eq. 14."""
    min: float
    max: float

    @property
    def exceeds(self) -> bool:
        """Whether some |p| is above ``THRESHOLD``: the paper's yellow cells."""
        return max(-self.min, self.max) > THRESHOLD


@dataclass(frozen=True)
class Dilation:
    """Aggregates of alpha_i = |A_i|; ``std`` and ``range`` are 0 for a rotation times a scalar."""

    std: float
    """sigma(alpha) / mean, population, eq. 17."""
    range: float
    """(max - min) / mean, eq. 18."""
    mean: float
    min: float
    max: float


def orthogonality(weight: npt.ArrayLike) -> Orthogonality:
    """Cosines between different columns of A = W^T (eqs. 11-16): one matmul, O(d^2) memory.

    Args:
        weight: W (d, m) of ``y = x W``, d >= 2, no zero row.

    Raises:
        AlignmentError: W has fewer than two rows, or a zero or non-finite one.
    """
    matrix, norms = _rows(weight)
    unit = matrix / norms[:, None]
    p = (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
    return Orthogonality(float(np.abs(p).mean()), float(p.std()), float(p.min()), float(p.max()))


def dilation(weight: npt.ArrayLike) -> Dilation:
    """Evenness of the lengths of the columns of A = W^T (eqs. 17-20); W and the errors as in :func:`orthogonality`."""
    _, alpha = _rows(weight)
    mean, low, high = float(alpha.mean()), float(alpha.min()), float(alpha.max())
    return Dilation(float(alpha.std()) / mean, (high - low) / mean, mean, low, high)


def _rows(weight: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    matrix: npt.NDArray[np.float64] = np.asarray(weight, np.float64)
    if matrix.ndim != 2 or len(matrix) < 2:
        raise AlignmentError(f"a map of shape {matrix.shape} has no angles between directions; pass W (d, m), d >= 2.")
    norms: npt.NDArray[Any] = np.linalg.norm(matrix, axis=1)
    if not (np.isfinite(norms).all() and norms.all()):
        raise AlignmentError("a row of W is zero or not finite, so its angles are undefined; fit the map on more data.")
    return matrix, norms


CUT = 1e-2
"""Fraction of the mean variance; along directions below it, :func:`determined_map` uses the rotation."""


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
        held: The same for other pairs, (m, d) each.
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
