"""Ranks of gold counterparts and of targets by counting, in blocks: no sort, no matrix of all scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BLOCK = 1024
"""Rows of a block of the score matrix: with 1,012 to 2,000 columns of float32 it stays in a CPU's cache."""
TIE = 1e-6
"""Cosines this close are equal: a float32 product gives equal rows scores that differ by rounding."""
POOL_BLOCK = 128
"""Queries that are scored at a time against a pool, which may be several times as wide."""

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


def target_counts(
    queries: npt.NDArray[np.floating], pool: npt.NDArray[np.floating], targets: npt.NDArray[np.integer]
) -> Ranks:
    """How many of the pool score at least as high as each target, by dot product; the target itself counts.

    Of the (n, m) scores, :data:`POOL_BLOCK` rows are held at a time.

    Args:
        queries: (n, d).
        pool: (m, d).
        targets: (n, k) rows of the pool that are relevant to each query; negative where a query has fewer than k.

    Returns:
        (n, k) counts, 0 where there is no target.
    """
    counts = np.zeros(targets.shape, dtype=np.int64)
    block = np.empty((min(POOL_BLOCK, len(queries)), len(pool)), dtype=np.result_type(queries, pool))
    mask = np.empty(block.shape, dtype=np.bool_)
    for start in range(0, len(queries), POOL_BLOCK):
        rows = slice(start, min(start + POOL_BLOCK, len(queries)))
        scores = np.matmul(queries[rows], pool.T, out=block[: rows.stop - start])
        own = np.take_along_axis(scores, np.maximum(targets[rows], 0), axis=1)
        for k in range(targets.shape[1]):
            at_least = np.greater_equal(scores, own[:, k, None], out=mask[: len(scores)])
            counts[rows, k] = np.count_nonzero(at_least, axis=1)
    counts[targets < 0] = 0
    return counts


def average_precision(counts: Ranks) -> npt.NDArray[np.float64]:
    """AP of each query, as scikit-learn's ``average_precision_score`` has it.

    The mean over a query's targets of the precision among all that score at least as high: candidates of equal score
    come in together, so that a tie counts against the model.

    Args:
        counts: (n, k) of :func:`target_counts`; every row has a target.

    Returns:
        (n,) in (0, 1].
    """
    precision = _targets_at_least(counts) / np.maximum(counts, 1)
    ap: npt.NDArray[np.float64] = precision.sum(axis=1) / np.count_nonzero(counts, axis=1)
    return ap


def one_target_precision(counts: Ranks) -> npt.NDArray[np.float64]:
    """AP of each query when all its targets but one are taken out of the pool: 1 / rank of the one that is left.

    Args:
        counts: (n, k) of :func:`target_counts`.

    Returns:
        (n, k): by the target that is left; nan where there is none.
    """
    others = _targets_at_least(counts) - 1
    return np.where(counts > 0, 1 / np.maximum(counts - others, 1), np.nan)


def _targets_at_least(counts: Ranks) -> Ranks:
    """(n, k): how many of a query's targets score at least as high as each; smaller counts are higher scores."""
    found: Ranks = np.count_nonzero((counts[:, None, :] <= counts[:, :, None]) & (counts[:, None, :] > 0), axis=2)
    return found
