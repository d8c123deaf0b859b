"""Measures of retrieval by graded judgements, from the ranks of the relevant documents."""

import numpy as np

from xalign_models.linalg.arrays import AnyFloats, Float64, Mask
from xalign_models.ranking.ranks import Ranks

CUTOFFS = (1, 10, 100)
"""Depths of the recall."""
TOP = 10
"""Depth of nDCG."""


def ranks_without(counts: Ranks, kept: Mask) -> Ranks:
    """Ranks (n, k) of some targets when a query's other targets are removed from the pool; 0 for removed ones.

    Targets with equal scores get the ranks that they share, one each.

    Args:
        counts: (n, k) of :func:`~xalign_models.ranking.ranks.target_counts`, 0 where there is no target.
        kept: (n, k) whether a target is kept.
    """
    ranks = np.zeros_like(counts)
    for row, (of_query, stays) in enumerate(zip(counts, kept, strict=True)):
        others, places = np.sort(of_query[~stays & (of_query > 0)]), np.flatnonzero(stays)
        left = of_query[stays] - np.searchsorted(others, of_query[stays], side="right")
        order = np.argsort(left, kind="stable")
        later = np.searchsorted(left[order], left[order], side="right") - np.arange(1, len(left) + 1)
        ranks[row, places[order]] = left[order] - later
    return ranks


def graded_measures(ranks: Ranks, gains: AnyFloats) -> dict[str, Float64]:
    """nDCG@10, recall@1, 10 and 100 and the reciprocal rank of each query (n,), by mteb's names.

    nDCG@10 is sum_i g_i / log2(1 + r_i) over the targets of rank r_i <= 10, over its maximum (Järvelin and Kekäläinen
    2002, with linear gains). Recall@k is the share of the targets of rank k or better, as in trec_eval.

    Args:
        ranks: (n, k) from 1; 0 where there is no target. Every row has a target.
        gains: (n, k) above zero.
    """
    there = ranks > 0
    discounted = np.where(there & (ranks <= TOP), gains / np.log2(np.maximum(ranks, 1) + 1.0), 0.0)
    best = -np.sort(-np.where(there, gains, 0.0), axis=1)[:, :TOP]
    ideal = best @ (1 / np.log2(np.arange(2, best.shape[1] + 2)))
    recalls = {f"recall_at_{k}": (there & (ranks <= k)).sum(axis=1) / there.sum(axis=1) for k in CUTOFFS}
    first = np.where(there, ranks, np.iinfo(ranks.dtype).max).min(axis=1)
    return {f"ndcg_at_{TOP}": discounted.sum(axis=1) / ideal, **recalls, "mrr": 1.0 / first}
