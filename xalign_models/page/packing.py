"""Packs numbers for the page: 16-bit integers, deflated, in base64."""

import base64
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def pack(parts: Iterable[npt.NDArray[np.int16]]) -> str:
    """Concatenated arrays: all low bytes, then all high bytes, which deflates better."""
    joined = np.concatenate([np.zeros(0, np.int16), *(part.ravel() for part in parts)])
    planes = joined.astype("<i2").view(np.uint8).reshape(-1, 2).T.tobytes()
    return base64.b64encode(zlib.compress(planes, 9)).decode()


class Numbered(dict[str, int]):
    """Numbers of texts, in order of first use."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]
