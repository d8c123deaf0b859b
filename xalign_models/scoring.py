"""Ranks of gold counterparts by counting, in blocks: no sort, no n x n matrix, both directions from one product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BLOCK = 1024
"""Rows of a block of the score matrix: with 1,012 to 2,000 columns of float32 it stays in a CPU's cache."""
TIE = 1e-6
"""Cosines this close are equal: a float32 product gives equal rows scores that differ by rounding."""

Ranks = npt.NDArray[np.int64]


def normalise(x: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Rows (n, d) at unit length, float32; zero rows stay zero."""
    rows = np.asarray(x, dtype=np.float32)
    unit: npt.NDArray[np.float32] = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny
    )
    return unit


def gold_ranks(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating], block: int = BLOCK) -> tuple[Ranks, Ranks]:
    """Rank of each row's counterpart by cosine, in both directions.

    Ties count against the model: rank = 1 + number of strictly greater scores + number of equal other scores; equal is
    within :data:`TIE`.

    Args:
        a: (n, d) unit rows; row i of ``b`` is the counterpart of row i.
        b: (n, d) unit rows.
        block: Rows of ``a`` scored at a time.

    Returns:
        (n,) rank of b_i among all rows of b for a_i, and (n,) rank of a_i among all rows of a for b_i; 1 is best.
    """
    n = len(a)
    gold = np.einsum("ij,ij->i", a, b) - TIE
    forward = np.empty(n, dtype=np.int64)
    backward = np.zeros(n, dtype=np.int64)
    for start in range(0, n, block):
        rows = slice(start, min(start + block, n))
        scores = a[rows] @ b.T
        forward[rows] = np.count_nonzero(scores >= gold[rows, None], axis=1)
        backward += np.count_nonzero(scores >= gold[None, :], axis=0)
    return forward, backward


def precision_at(ranks: Ranks, ks: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """``{"precision_at_1": ...}``: the share of ranks that are at most k, in [0, 1]."""
    return {f"precision_at_{k}": float(np.mean(ranks <= k)) for k in ks}
