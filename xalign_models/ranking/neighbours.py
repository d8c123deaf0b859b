"""What the neighbourhoods in a matrix of scores say: CSLS, ratio margin, hubness, mutual neighbours, MEXA.

All of it is read off the scores that the ranks are counted in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from xalign_models.ranking.ranks import TIE, Floats, Ranks

if TYPE_CHECKING:
    import torch

K = 10
"""Nearest neighbours that make a neighbourhood."""
ROWS = 4096
"""Most sentences that are measured: their scores, 64 MB, are held at a time."""
NAMES = (
    "csls_precision_at_1",
    "margin_precision_at_1",
    "mexa",
    "mutual_neighbours",
    "hubness_skewness",
    "never_found",
)
"""The measures of a direction, queries among candidates. With r the mean cosine of the K nearest on the other side:

- ``csls_precision_at_1``: P@1 by 2 cos(x, y) - r(x) - r(y) (Conneau et al., 2018);
- ``margin_precision_at_1``: P@1 by cos(x, y) / ((r(x) + r(y)) / 2) (Artetxe and Schwenk, 2019);
- ``mexa``: share of sentences whose translation scores above every other in both directions (Kargaran et al., 2024);
- ``mutual_neighbours``: share of queries whose nearest candidate has them as its nearest;
- ``hubness_skewness``: skewness of how often a candidate is among the K nearest (Radovanovic et al., 2010);
- ``never_found``: share of candidates that are among the K nearest of no query.
"""
_GROUPS = 128  # maxima of so many groups bound the K-th largest score from below
_BLOCK = 128  # rows of adjusted scores that stay in a CPU's cache


def neighbour_measures(scores: torch.Tensor, first: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """:data:`NAMES` of pairs of languages, in both directions.

    Args:
        scores: Cosines (k, n, n) of k pairs, on any device; row i's counterpart is column i.
        first: (k, 2, n) whether a sentence's rank is 1, by row and by column.

    Returns:
        (k, 2, 6): rows as queries, columns as queries.
    """
    measures = np.empty((len(scores), 2, len(NAMES)))
    measures[..., 2] = first.all(axis=1).mean(axis=1)[:, None]
    for pair, matrix in enumerate(scores):
        (near, best, counts), (near_c, best_c, counts_c) = _neighbourhoods(matrix)
        measures[pair, :, :2] = _adjusted(matrix, near, near_c)
        measures[pair, :, 3] = (best_c[best] == np.arange(len(best))).mean()
        for direction, occurrences in enumerate((counts, counts_c)):
            measures[pair, direction, 4:] = _skewness(occurrences), (occurrences == 0).mean()
    return measures


Neighbourhood = tuple[npt.NDArray[np.floating], Ranks, Ranks]


def _neighbourhoods(scores: torch.Tensor) -> tuple[Neighbourhood, Neighbourhood]:
    """By row, then by column: mean of the K nearest (n,), the nearest (n,), how often each is among the K (n,)."""
    k = min(K, len(scores))
    if scores.device.type == "cpu":
        matrix = scores.numpy()
        return _by_row(matrix, k), _by_column(matrix, k)
    several = []
    for dim in (1, 0):
        top = scores.topk(k, dim=dim)
        indices = top.indices.cpu().numpy()
        counts = np.bincount(indices.ravel(), minlength=len(scores))
        several.append((top.values.mean(dim).cpu().numpy(), indices.take(0, axis=dim), counts))
    return several[0], several[1]


def _by_row(scores: Floats, k: int) -> Neighbourhood:
    least = _kth_largest(_pooled(scores.T).T, k)
    flat = np.flatnonzero(scores >= least[:, None])
    rows, columns = np.divmod(flat, scores.shape[1])
    return _nearest(rows, columns, scores.ravel()[flat], k, scores.shape[1])


def _by_column(scores: Floats, k: int) -> Neighbourhood:
    least = _kth_largest(np.ascontiguousarray(_pooled(scores).T), k)
    flat = np.flatnonzero(scores >= least)
    rows, columns = np.divmod(flat, scores.shape[1])
    order = np.argsort(columns.astype(np.min_scalar_type(scores.shape[1])), kind="stable")
    return _nearest(columns[order], rows[order], scores.ravel()[flat[order]], k, len(scores))


def _pooled(scores: Floats) -> Floats:
    """Maxima of disjoint groups of rows, (at most 128, m): halves are laid over each other until so few are left."""
    while (n := len(scores)) > _GROUPS:
        half = -(-n // 2)
        maxima = scores[:half].copy()
        np.maximum(maxima[: n - half], scores[half:], out=maxima[: n - half])
        scores = maxima
    return scores


def _kth_largest(rows: Floats, k: int) -> Floats:
    found: Floats = np.partition(rows, rows.shape[1] - k, axis=1)[:, -k]
    return found


def _nearest(of: Ranks, other: Ranks, scores: Floats, k: int, others: int) -> Neighbourhood:
    """A neighbourhood of candidates: scores of ``other`` for each of the sorted ``of``, k or more of each."""
    counts = np.bincount(of)
    table = np.full((len(counts), counts.max()), -np.inf, dtype=np.float32)
    table[of, np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)] = scores
    table.sort(axis=1)
    within = scores >= table[of, -k]
    best = np.empty(len(counts), dtype=np.int64)
    at_top = scores == table[of, -1]
    best[of[at_top]] = other[at_top]
    return table[:, -k:].mean(axis=1), best, np.bincount(other[within], minlength=others)


def _adjusted(scores: torch.Tensor, near: npt.NDArray[np.floating], near_c: npt.NDArray[np.floating]) -> Floats:
    """P@1 by CSLS and by ratio margin, ((2, 2): rows then columns as queries); ties count against the model."""
    import torch

    n = len(scores)
    r, c = (torch.as_tensor(side, dtype=torch.float32, device=scores.device) for side in (near, near_c))
    r_positive, c_positive = r.clamp(min=TIE), c.clamp(min=TIE)
    buffer = torch.empty((min(_BLOCK, n), n), device=scores.device)
    by_row, by_column = (torch.full((2, n), -torch.inf, device=scores.device) for _ in range(2))
    gold = scores.diagonal()
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        block, out = scores[rows], buffer[: rows.stop - start]
        own = out.diagonal(start)  # the golds, left out of the maxima
        torch.sub(block, c / 2, out=out)
        own.fill_(-torch.inf)
        by_row[0, rows] = out.amax(1)
        torch.sub(block, r[rows, None] / 2, out=out)
        own.fill_(-torch.inf)
        by_column[0] = torch.maximum(by_column[0], out.amax(0))
        torch.add(r_positive[rows, None], c_positive, out=out)
        torch.div(block, out, out=out)
        own.fill_(-torch.inf)
        by_row[1, rows] = out.amax(1)
        by_column[1] = torch.maximum(by_column[1], out.amax(0))
    margin = gold / (r_positive + c_positive)
    golds = torch.stack([gold - c / 2, margin]), torch.stack([gold - r / 2, margin])
    hits = torch.stack(
        [(best < own - TIE).float().mean(1) for best, own in zip((by_row, by_column), golds, strict=True)]
    )
    found: Floats = hits.cpu().numpy()
    return found


def _skewness(counts: Ranks) -> float:
    """Third standardised moment, 0 where all counts are equal."""
    deviation = counts - counts.mean()
    spread = np.sqrt((deviation**2).mean())
    return float((deviation**3).mean() / spread**3) if spread else 0.0


def mutual_neighbours(a: Floats, b: Floats) -> tuple[Ranks, Ranks]:
    """Rows of ``a`` (n, d) and of ``b`` (m, d), unit length, that are each other's nearest, in blocks of rows."""
    best, best_score = np.empty(len(a), dtype=np.int64), np.full(len(b), -np.inf, dtype=np.float32)
    back = np.zeros(len(b), dtype=np.int64)
    columns = np.arange(len(b))
    for start in range(0, len(a), 1024):
        scores = a[start : start + 1024] @ b.T
        best[start : start + 1024] = scores.argmax(axis=1)
        row = scores.argmax(axis=0)
        better = scores[row, columns] > best_score
        best_score[better], back[better] = scores[row, columns][better], start + row[better]
    mutual = np.flatnonzero(back[best] == np.arange(len(a)))
    return mutual, best[mutual]
