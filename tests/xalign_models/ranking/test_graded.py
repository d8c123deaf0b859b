"""Graded measures against sums written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.ranking.graded import graded_measures, ranks_without


def test_measures_of_one_query_by_hand():
    found = graded_measures(np.array([[3, 1, 11, 0]]), np.array([[2.0, 1.0, 3.0, 9.0]]))
    ideal = 3 / 1 + 2 / np.log2(3) + 1 / 2
    assert found["ndcg_at_10"][0] == pytest.approx((1 / 1 + 2 / 2) / ideal)
    assert found["recall_at_1"][0] == pytest.approx(1 / 3)
    assert found["recall_at_10"][0] == pytest.approx(2 / 3)
    assert found["recall_at_100"][0] == 1
    assert found["mrr"][0] == 1


@pytest.mark.parametrize("levels", [4, 10_000])
def test_ranks_are_those_of_a_pool_without_the_others(levels):
    rng = np.random.default_rng(0)
    scores = rng.integers(levels, size=(50, 30))
    targets = np.arange(6)
    kept = rng.random((50, 6)) < 0.5
    counts = (scores[:, None, :] >= scores[:, :6, None]).sum(axis=2)
    ranks = ranks_without(counts, kept)
    for row in range(50):
        pool = [i for i in range(30) if i >= 6 or kept[row, i]]
        # best score first; of equal ones, candidates that are no target first
        order = sorted(pool, key=lambda i: (-scores[row, i], i < 6))
        expected = sorted(order.index(i) + 1 for i in targets if kept[row, i])
        assert sorted(ranks[row, kept[row]]) == expected
        assert not ranks[row, ~kept[row]].any()
