"""Types of numpy arrays that several modules share, rows of unit length in float64, and the length of rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyFloats = npt.NDArray[np.floating[Any]]
AnyInts = npt.NDArray[np.integer]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def unit(x: npt.NDArray[Any]) -> Float64:
    """Rows (n, d) at unit length, float64; zero rows stay zero."""
    rows = np.asarray(x, dtype=np.float64)
    lengths: Float64 = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float64).tiny))


def median_length(x: npt.NDArray[Any]) -> float:
    """Median Euclidean length of rows (n, d) that are not zero; 0 without one."""
    lengths = np.linalg.norm(x.astype(np.float64), axis=1)
    return float(np.median(lengths[lengths > 0])) if (lengths > 0).any() else 0.0
