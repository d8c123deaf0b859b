"""Numbers as text of a page: 16-bit integers, deflated, in base64, which the page unpacks when it needs them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MISSING = np.iinfo(np.int16).min
"""A number that is not there."""


def pack(parts: Iterable[npt.NDArray[np.int16]]) -> str:
    """Arrays one after the other: their low bytes, then their high bytes, which deflates better."""
    whole = np.concatenate([np.zeros(0, np.int16), *(part.ravel() for part in parts)])
    planes = whole.astype("<i2").view(np.uint8).reshape(-1, 2).T.tobytes()
    return base64.b64encode(zlib.compress(planes, 9)).decode()
