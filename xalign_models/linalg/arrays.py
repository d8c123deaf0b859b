"""Types of numpy arrays that several modules share."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyFloats = npt.NDArray[np.floating[Any]]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
