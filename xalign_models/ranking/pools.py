"""Baselines for pools of several languages that change only how scores rank the pool, not the vectors.

They know every text's language but no answers; :func:`~xalign_models.ranking.ranks.target_counts` applies them.
"""

import numpy as np

from xalign_models.linalg.arrays import AnyFloats, AnyInts, Float64
from xalign_models.ranking.ranks import Adjust, Ranks, normalise, target_counts


def quota(languages: AnyInts) -> Adjust:
    """Take each language's best in turn, as in arXiv 2507.07543: first every language's best, then every second best.

    The scores order the candidates within a turn. Equal scores of one language take turns in the order of the pool.

    Args:
        languages: (m,) of the pool, integers from 0.
    """
    columns = [np.flatnonzero(languages == language) for language in np.unique(languages)]

    def adjust(scores: AnyFloats, rows: slice) -> Float64:
        within = np.arctan(scores.astype(np.float64)) / 4 + 0.5  # below 1, in the order of the scores
        for chosen in columns:
            order = np.argsort(-scores[:, chosen], axis=1, kind="stable")
            within[:, chosen] -= np.argsort(order, axis=1)
        within[np.isneginf(scores)] = -np.inf  # removed candidates
        return within

    return adjust


def z_scores(queries: AnyFloats, pool: AnyFloats, of_queries: AnyInts, of_pool: AnyInts) -> Adjust:
    """Scores standardised by the languages of query and candidate: minus their mean, divided by their deviation.

    Both come from all pairs of the two languages' texts, in closed form: the mean of q d^T is the product of the means,
    and the mean of (q d^T)^2 is the trace of the product of the second moments.

    Args:
        queries: (n, d).
        pool: (m, d).
        of_queries: (n,) languages, integers from 0.
        of_pool: (m,) languages, likewise.
    """
    count = 1 + max(int(of_queries.max()), int(of_pool.max()))
    sides = []
    for vectors, ids in ((queries, of_queries), (pool, of_pool)):
        parts = [vectors[ids == language].astype(np.float64) for language in range(count)]
        means = np.stack([part.sum(axis=0) / max(1, len(part)) for part in parts])
        sides.append((means, np.stack([part.T @ part / max(1, len(part)) for part in parts]).reshape(count, -1)))
    means, squares = (side @ other.T for side, other in zip(*sides, strict=True))
    deviations = np.sqrt(np.maximum(squares - means**2, np.finfo(np.float32).eps))

    def adjust(scores: AnyFloats, rows: slice) -> Float64:
        asked = of_queries[rows]
        standard: Float64 = (scores - means[asked][:, of_pool]) / deviations[asked][:, of_pool]
        return standard

    return adjust


def mixed(queries: AnyFloats, partners: AnyFloats, share: float = 0.5) -> AnyFloats:
    """Queries mixed with their translations: ``(1 - share) q + share q'``, of unit length (arXiv 2606.13537).

    Args:
        queries: (n, d), of unit length.
        partners: (n, d), the same queries in the partner language, such as English.
        share: Share of the partner.
    """
    return normalise((1 - share) * queries + share * partners)


def one_target_ranks(queries: AnyFloats, pool: AnyFloats, targets: AnyInts, adjust: Adjust | None = None) -> Ranks:
    """Rank (n, k) of each target when the query's other targets are removed from the pool; 0 if there is no target.

    Adjusted scores may depend on the remaining candidates, so each target is ranked in its own pool.

    Args:
        queries: (n, d).
        pool: (m, d).
        targets: (n, k) rows of the pool, negative where a query has fewer than k.
        adjust: Function of the scores, as in :func:`~xalign_models.ranking.ranks.target_counts`.
    """
    ranks = np.zeros(targets.shape, dtype=np.int64)
    for column in range(targets.shape[1]):
        others = np.delete(targets, column, axis=1)

        def left(scores: AnyFloats, rows: slice, others: AnyInts = others) -> AnyFloats:
            query, place = np.nonzero(others[rows] >= 0)
            scores[query, others[rows][query, place]] = -np.inf
            return scores if adjust is None else adjust(scores, rows)

        ranks[:, [column]] = target_counts(queries, pool, targets[:, [column]], adjust=left)
    return ranks
