"""Ranks of gold counterparts and of targets by counting, in blocks: no sort, no matrix of all scores."""

from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt

from xalign_models.errors import DataError
from xalign_models.linalg.arrays import AnyFloats, AnyInts, Float32, Float64, Mask

TILE = 1024
"""Rows and columns of a tile of scores: 4 MB of float32, which fits into a CPU's cache."""
TIE = 1e-6
"""Difference up to which cosines count as equal: in float32, scores of equal rows differ by rounding."""
SHORT = 1e-15
"""Rows up to this length are scaled before their length is measured: float32 loses the squares of such numbers."""
POOL_BLOCK = 128
"""Number of queries scored against a pool at a time."""
_BYTE = 255  # the largest number of eight bits

Ranks = npt.NDArray[np.int64]
AnyRanks = AnyInts
"""Ranks in the smallest sufficient integer type."""
Adjust = Callable[[AnyFloats, slice], AnyFloats]
"""Turns the scores of a block of queries (b, m), with the queries' rows, into the scores that rank the pool."""


def normalise(x: AnyFloats) -> Float32:
    """Rows (n, d) at unit length, float32; zero rows stay zero."""
    rows = np.asarray(x, dtype=np.float32)
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if (odd := ~((norms > SHORT) & (norms < np.inf))[:, 0]).any():  # squares overflow or vanish
        largest, rows = np.abs(rows[odd]).max(axis=1, keepdims=True, initial=0), rows.copy()
        rows[odd] /= np.where((largest > 0) & (largest < np.inf), largest, 1)
        norms[odd] = np.linalg.norm(rows[odd], axis=1, keepdims=True)
    unit: Float32 = rows / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


def scores_of(a: Float32, b: Float32) -> Float32:
    """Scores a b^T, (n, m) float32, of rows (n, d) and (m, d), on torch's threads or, without oneDNN, on numpy's."""
    import torch

    from xalign_models.linalg import onednn

    if not (multiply := onednn.product()):
        return a @ b.T
    return multiply(torch.from_numpy(a), torch.from_numpy(b), None).numpy()


def gold_ranks(a: AnyFloats, b: AnyFloats, tile: int = TILE, scores: Float32 | None = None) -> tuple[Ranks, Ranks]:
    """Rank of each row's counterpart by cosine, in both directions.

    Ties count against the model: rank = 1 + number of strictly greater scores + number of equal other scores; equal is
    within :data:`TIE`. Every score is computed once and serves both directions.

    Args:
        a: (n, d) unit rows; row i of ``b`` is the counterpart of row i.
        b: (n, d) unit rows.
        tile: Rows of ``a`` and of ``b`` whose scores are compared at a time, at most 2,040.
        scores: All scores (n, n), if computed already; by default tiles are computed in turn.

    Returns:
        (n,) rank of b_i among all rows of b for a_i, and (n,) rank of a_i among all rows of a for b_i; 1 is best.
    """
    a, b = (np.ascontiguousarray(rows, dtype=np.float32) for rows in (a, b))
    least = np.empty(len(a), dtype=np.float32)
    forward, backward = np.zeros((2, len(a)), dtype=np.int64)
    slices = [slice(start, min(start + tile, len(a))) for start in range(0, len(a), tile)]
    # Tiles on the diagonal come first: they contain the gold scores, which other tiles are compared with.
    for rows, columns in sorted(product(slices, repeat=2), key=lambda pair: pair[0] != pair[1]):
        block = scores_of(a[rows], b[columns]) if scores is None else scores[rows, columns]
        if rows == columns:
            least[rows] = block.diagonal() - np.float32(TIE)
        width = block.shape[1]
        mask = np.empty((len(block), -(-width // 8) * 8), dtype=np.bool_)
        mask[:, width:] = False
        np.greater_equal(block, least[rows, None], out=mask[:, :width])
        forward[rows] += _true_by_row(mask)
        np.greater_equal(block, least[None, columns], out=mask[:, :width])
        backward[columns] += _true_by_column(mask)[:width]
    return forward, backward


def _true_by_row(mask: Mask) -> Ranks:
    """``mask.sum(axis=1)`` of (n, 8 m), m <= 255: eight columns are added at a time, in the bytes of one integer."""
    eighths = np.add.reduce(mask.view(np.uint64), axis=1)[:, None].view(np.uint8)
    counts: Ranks = eighths.sum(axis=1, dtype=np.int64)
    return counts


def _true_by_column(mask: Mask) -> Ranks:
    """``mask.sum(axis=0)`` in bytes, which 255 rows cannot overflow: a register holds eight times as many bytes."""
    counts = np.zeros(mask.shape[1], dtype=np.int64)
    for start in range(0, len(mask), _BYTE):
        counts += np.add.reduce(mask[start : start + _BYTE].view(np.uint8), axis=0, dtype=np.uint8)
    return counts


def precision_at(ranks: AnyRanks) -> dict[str, float]:
    """``{"precision_at_1": ...}``: the share of ranks that are at most k = 1, 5 and 10, in [0, 1].

    Raises:
        DataError: A rank is below 1, because vectors are not finite.
    """
    if (ranks < 1).any():
        raise DataError("Some ranks are below 1 because vectors are not finite; encode in float32.")
    return {f"precision_at_{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}


def target_counts(
    queries: AnyFloats, pool: AnyFloats, targets: AnyInts, best: Ranks | None = None, adjust: Adjust | None = None
) -> Ranks:
    """Number of rows of the pool that score at least as high as each target, itself included, by dot product.

    :data:`POOL_BLOCK` rows of the (n, m) scores are in memory at a time.

    Args:
        queries: (n, d).
        pool: (m, d).
        targets: (n, k) rows of the pool that are relevant to each query; negative where a query has fewer than k.
        best: (n, t) array to fill with the t highest-scoring rows of the pool, the highest first.
        adjust: Function of a block's scores (b, m) and the rows of its queries that returns other scores; see
            :mod:`xalign_models.ranking.pools`.

    Returns:
        (n, k) counts, 0 where there is no target.
    """
    import torch  # its selection is several times as fast as numpy's

    counts = np.zeros(targets.shape, dtype=np.int64)
    block = np.empty((min(POOL_BLOCK, len(queries)), len(pool)), dtype=np.result_type(queries, pool))
    mask = np.empty(block.shape, dtype=np.bool_)
    for start in range(0, len(queries), POOL_BLOCK):
        rows = slice(start, min(start + POOL_BLOCK, len(queries)))
        scores: AnyFloats = np.matmul(queries[rows], pool.T, out=block[: rows.stop - start])
        if adjust is not None:
            scores = adjust(scores, rows)
        if best is not None:
            best[rows] = torch.from_numpy(scores).topk(best.shape[1], dim=1).indices.numpy()
        target_scores = np.take_along_axis(scores, np.maximum(targets[rows], 0), axis=1)
        for k in range(targets.shape[1]):
            at_least = np.greater_equal(scores, target_scores[:, k, None], out=mask[: len(scores)])
            counts[rows, k] = np.count_nonzero(at_least, axis=1)
    counts[targets < 0] = 0
    return counts


def nearest_others(queries: AnyFloats, pool: AnyFloats, own: AnyInts, count: int, keys: AnyInts | None = None) -> Ranks:
    """The rows (n, count) of the pool nearest to each query, the nearest first, without those of the query's own key.

    ``own`` (n,) are the keys of the queries, and ``keys`` (m,) those of the pool, by default the rows' numbers.
    """
    labels = np.arange(len(pool)) if keys is None else keys
    nearest = np.empty((len(queries), min(count, len(pool) - 1)), np.int64)

    def without(scores: AnyFloats, rows: slice) -> AnyFloats:
        scores[own[rows, None] == labels] = -np.inf
        return scores

    target_counts(queries, pool, np.empty((len(queries), 0), np.int64), nearest, without)
    return nearest


def average_precision(counts: Ranks) -> Float64:
    """AP of each query, equal to scikit-learn's ``average_precision_score``.

    AP is the mean over a query's targets of the precision among all candidates that score at least as high. Candidates
    of equal score enter together, so a tie counts against the model.

    Args:
        counts: (n, k) of :func:`target_counts`; every row has a target.

    Returns:
        (n,) in (0, 1].
    """
    precision = _targets_at_least(counts) / np.maximum(counts, 1)
    ap: Float64 = precision.sum(axis=1) / np.count_nonzero(counts, axis=1)
    return ap


def one_target_precision(counts: Ranks) -> Float64:
    """AP of each query when all its targets but one are removed from the pool: 1 / rank of the remaining target.

    Args:
        counts: (n, k) of :func:`target_counts`.

    Returns:
        (n, k) by remaining target; nan where there is no target.
    """
    earlier = _targets_at_least(counts) - 1
    return np.where(counts > 0, 1 / np.maximum(counts - earlier, 1), np.nan)


def _targets_at_least(counts: Ranks) -> Ranks:
    """Number (n, k) of a query's targets that score at least as high as each one; smaller counts are higher scores."""
    smaller: Ranks = np.count_nonzero((counts[:, None, :] <= counts[:, :, None]) & (counts[:, None, :] > 0), axis=2)
    return smaller
