"""Measures of the neighbourhoods in a matrix of scores: CSLS, ratio margin, hubness, mutual neighbours, MEXA.

They are computed from the same scores as the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.linalg.arrays import Float32, Float64, Mask
from xalign_models.ranking.ranks import TIE, Ranks, gold_ranks, scores_of

if TYPE_CHECKING:
    import torch

K = 10
"""Size of a neighbourhood: the number of nearest neighbours."""
ROWS = 4096
"""Maximum number of sentences to measure; all their scores (64 MB) are in memory at once."""
NAMES = (
    "csls_precision_at_1",
    "margin_precision_at_1",
    "mexa",
    "mutual_neighbours",
    "hubness_skewness",
    "never_found",
    "f1",
)
"""The measures of a direction, queries among candidates. With r the mean cosine of the K nearest on the other side:

- ``csls_precision_at_1``: P@1 by 2 cos(x, y) - r(x) - r(y) (Conneau et al., 2018);
- ``margin_precision_at_1``: P@1 by cos(x, y) / ((r(x) + r(y)) / 2) (Artetxe and Schwenk, 2019);
- ``mexa``: share of sentences whose translation scores above every other in both directions (Kargaran et al., 2024);
- ``mutual_neighbours``: share of queries that are the nearest neighbour of their nearest candidate;
- ``hubness_skewness``: skewness of how often a candidate is among the K nearest (Radovanovic et al., 2010);
- ``never_found``: share of candidates that are among the K nearest of no query;
- ``f1``: mteb's score of bitext mining. Each candidate is a class, and a query's nearest candidate is its prediction.
  The F1 of a class that its own query and c - 1 others predict is 2 / (1 + c); the measure is the mean over classes.
"""
Measures = Float64
_BLOCK = 64  # rows that fit into a core's cache
_GROUPS = 128  # number of groups whose maxima bound the K-th largest score from below


def measured_ranks(a: Float32, b: Float32) -> tuple[Ranks, Ranks, Measures]:
    """:func:`gold_ranks` and :func:`neighbour_measures` (2, 7) of the same scores.

    Args:
        a: (n, d) float32 unit rows; row i of ``b`` is the counterpart of row i.
        b: (n, d).

    Returns:
        (n,) ranks in each direction, and the measures, which are nan beyond :data:`ROWS` rows or if a rank is below 1.
    """
    if len(a) > ROWS:
        return *gold_ranks(a, b), np.full((2, len(NAMES)), np.nan)
    import torch

    scores = scores_of(np.ascontiguousarray(a), np.ascontiguousarray(b))
    forward, backward = gold_ranks(a, b, scores=scores)
    if min(forward.min(initial=1), backward.min(initial=1)) < 1:  # vectors are not finite, so they have no neighbours
        return forward, backward, np.full((2, len(NAMES)), np.nan)
    first = np.stack([forward, backward]) == 1
    return forward, backward, neighbour_measures(torch.from_numpy(scores)[None], first[None])[0]


def neighbour_measures(scores: torch.Tensor, first: Mask) -> Measures:
    """:data:`NAMES` of pairs of languages, in both directions.

    Args:
        scores: Cosines (k, n, n) of k pairs, on any device; row i's counterpart is column i.
        first: (k, 2, n) whether a sentence's rank is 1, by row and by column.

    Returns:
        (k, 2, 7): rows as queries, columns as queries.
    """
    measures = np.empty((len(scores), 2, len(NAMES)))
    counterparts = np.arange(scores.shape[1])
    for pair, matrix in zip(measures, scores, strict=True):
        sides = _on_cpu(matrix.numpy()) if matrix.device.type == "cpu" else _on_accelerator(matrix)
        for direction, (hits, best, counts) in zip(pair, sides, strict=True):
            direction[:2] = hits
            direction[4:] = _skewness(counts), (counts == 0).mean(), _f1(best)
        pair[:, 3] = (sides[1][1][sides[0][1]] == counterparts).mean()
    measures[..., 2] = first.all(axis=1).mean(axis=1)[:, None]
    return measures


Side = tuple[list[float], Ranks, Ranks]
"""P@1 of a direction by each of _SCORES, each query's nearest (n,), how often a candidate is among the K (n,)."""


def _csls(scores: Any, of: Any, to: Any) -> Any:
    """Half of CSLS, without the term that is equal for all candidates of a query."""
    return scores - to / 2


def _margin(scores: Any, of: Any, to: Any) -> Any:
    return scores / (of.clip(TIE) + to.clip(TIE))


_SCORES = (_csls, _margin)


def _on_cpu(scores: Float32) -> tuple[Side, Side]:
    """Both directions, from the few scores that can be in the top K of a row or column, without sorting all."""
    n = len(scores)
    blocks = [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
    by_row = np.concatenate([_kth_largest(_pooled(scores[block].T).T, min(K, n)) for block in blocks])
    bounds = by_row, _kth_largest(_pooled(scores).T, min(K, n))
    flat = np.concatenate(
        [
            np.flatnonzero(scores[block] >= np.minimum(by_row[block, None], bounds[1])) + block.start * n
            for block in blocks
        ]
    )
    rows, columns = np.divmod(flat, n)
    order = np.argsort(columns.astype(np.min_scalar_type(n)), kind="stable")
    lists = [(rows, columns, scores.ravel()[flat])]
    lists.append((columns[order], rows[order], lists[0][2][order]))
    near = [_nearest(*top, bound, min(K, n)) for top, bound in zip(lists, bounds, strict=True)]
    means = [mean for mean, _, _ in near]
    matrices = scores, scores.T
    return tuple(  # type: ignore[return-value]  # a pair
        (
            [_first_by(score, matrices[i], lists[i], bounds[i], means[i], means[1 - i]) for score in _SCORES],
            *near[i][1:],
        )
        for i in range(2)
    )


def _pooled(scores: Float32) -> Float32:
    """Maxima of disjoint groups of rows, (at most 128, m), by repeatedly taking the maximum of two halves."""
    while (n := len(scores)) > _GROUPS:
        half = -(-n // 2)
        maxima = np.empty_like(scores[:half])
        np.maximum(scores[: n - half], scores[half:], out=maxima[: n - half])
        maxima[n - half :] = scores[n - half : half]
        scores = maxima
    return scores


def _kth_largest(rows: Float32, k: int) -> Float32:
    ordered = np.partition(np.ascontiguousarray(rows), rows.shape[1] - k, axis=1)
    return ordered[:, -k].copy()  # comparisons with a strided array are slow


def _nearest(of: Ranks, to: Ranks, scores: Float32, bound: Float32, k: int) -> tuple[Float32, Ranks, Ranks]:
    """Mean of the k largest scores (n,), the best candidate (n,), how often each candidate is among the k (n,)."""
    n = len(bound)
    above = np.flatnonzero(scores >= bound[of])
    of, to, scores = of[above], to[above], scores[above]
    counts = np.bincount(of, minlength=n)
    table = np.full((n, counts.max()), -np.inf, dtype=np.float32)
    table[of, np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)] = scores
    table.sort(axis=1)
    best = np.empty(n, dtype=np.int64)
    at_top = scores == table[of, -1]
    best[of[at_top]] = to[at_top]
    return table[:, -k:].mean(axis=1), best, np.bincount(to[scores >= table[of, -k]], minlength=n)


def _first_by(
    score: Callable[..., Float32],
    matrix: Float32,
    top: tuple[Ranks, Ranks, Float32],
    bound: Float32,
    r: Float32,
    c: Float32,
) -> float:
    """Share of queries whose counterpart has the highest adjusted score; ties count against the model.

    ``score`` adjusts scores (n, n), queries in rows, by the means r (n,) and c (n,) of the queries' and the candidates'
    neighbourhoods. ``top`` has query, candidate and score of the highest; no other score is above ``bound`` (n,).
    """
    of, to, scores = top
    gold = score(matrix.diagonal(), r, c) - TIE
    adjusted = score(scores, r[of], c[to])
    adjusted[of == to] = -np.inf
    best = np.maximum.reduceat(adjusted, np.searchsorted(of, np.arange(len(gold))))
    rivals = np.maximum(score(bound, r, c.min()), score(bound, r, c.max()))
    open_ = np.flatnonzero((best < gold) & (rivals >= gold))
    if len(open_):  # scores below the bound decide
        dense = score(matrix[open_], r[open_, None], c)
        dense[np.arange(len(open_)), open_] = -np.inf
        best[open_] = dense.max(axis=1)
    return float((best < gold).mean())


def _on_accelerator(scores: torch.Tensor) -> tuple[Side, Side]:
    """The same as :func:`_on_cpu`: every score equal to the K-th counts, and the last of tied largest is the nearest.

    The indices that ``topk`` gives for equal scores depend on the device, so only its values are used.
    """
    import torch

    n = len(scores)
    columns = torch.arange(n, dtype=torch.int32, device=scores.device)
    tops = [matrix.topk(min(K, n), dim=1).values for matrix in (scores, scores.T)]
    means = [top.mean(dim=1) for top in tops]
    sides = []
    for i, matrix in enumerate((scores, scores.T)):
        hits = []
        for score in _SCORES:
            adjusted = score(matrix, means[i][:, None], means[1 - i])
            gold = adjusted.diagonal().clone() - TIE
            adjusted.diagonal().fill_(-np.inf)
            hits.append(float((adjusted.amax(dim=1) < gold).double().mean()))
        counts = (matrix >= tops[i][:, -1:]).sum(dim=0)
        best = torch.where(matrix == tops[i][:, :1], columns, -1).amax(dim=1)
        sides.append((hits, best.cpu().numpy(), counts.cpu().numpy()))
    return sides[0], sides[1]


def _skewness(counts: Ranks) -> float:
    """Third standardised moment; 0 if all counts are equal."""
    deviation = counts - counts.mean()
    squares = deviation * deviation
    spread = np.sqrt(squares.mean())
    return float((squares * deviation).mean() / spread**3) if spread else 0.0


def _f1(predicted: Ranks) -> float:
    """Mean F1 of the classes, where query i belongs to class i."""
    times = np.bincount(predicted, minlength=len(predicted))
    hits = predicted == np.arange(len(predicted))
    return float((2 * hits / (1 + times)).mean())


def mutual_neighbours(a: Float32, b: Float32) -> tuple[Ranks, Ranks]:
    """Rows of ``a`` (n, d) and ``b`` (m, d), of unit length, that are each other's nearest; in blocks of rows."""
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
