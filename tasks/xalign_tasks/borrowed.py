"""Private functions of mteb that the tasks call."""

from collections.abc import Mapping
from typing import Any


def retrieval_scores(
    results: Mapping[str, Mapping[str, float]], relevant: Mapping[str, Mapping[str, int]], cutoff: int
) -> Mapping[str, Mapping[str, float]]:
    """Each query's retrieval measures by mteb's names, ``ndcg_cut_10`` among them.

    mteb publishes means over queries only, while the significance tests need each query's own score. ``results`` and
    ``relevant`` have similarities and grades by query id and item id; the ``cutoff`` best items count.
    """
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

    scored: Any = calculate_retrieval_scores(results, relevant, [cutoff])
    by_query: Mapping[str, Mapping[str, float]] = scored.all_scores
    return by_query
