"""How far a linear map is from a rotation with dilation (Vasilyev et al., 2023, eqs. 11-20).

The paper's A multiplies column vectors; with row vectors ``y = x W`` it is W^T, so its *columns* A_j are the *rows* of
W. Both functions take W, as the alignments hold it in ``weights_``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import AlignmentError

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
