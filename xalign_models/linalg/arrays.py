"""Types of numpy arrays that several modules share, and rows of unit length in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyFloats = npt.NDArray[np.floating[Any]]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def unit(x: npt.NDArray[Any]) -> Float64:
    """Rows (n, d) at unit length, float64; zero rows stay zero."""
    rows = np.asarray(x, dtype=np.float64)
    lengths: Float64 = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float64).tiny))
