"""Quota, z-scores and mixing on planted pools, against definitions worked query by query."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.ranking import ranks
from xalign_models.ranking.pools import mixed, one_target_ranks, quota, z_scores
from xalign_models.ranking.ranks import average_precision, normalise, one_target_precision, target_counts


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(ranks, "POOL_BLOCK", 7)


def pool_of(seed=0, n=30, m=90, d=8, languages=3):
    """Queries and a pool in three languages of unequal size, with up to three targets for each query."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(languages, m, p=[0.6, 0.3, 0.1])
    targets = np.stack([np.where(rng.random(n) < 0.9, rng.choice(np.flatnonzero(ids == language), n), -1)
                        for language in range(languages)], axis=1)  # fmt: skip
    targets[:, 0] = rng.choice(np.flatnonzero(ids == 0), n)
    return (
        normalise(rng.standard_normal((n, d))),
        normalise(rng.standard_normal((m, d))),
        rng.integers(0, 3, n),
        ids,
        targets,
    )


def in_turn(scores, ids):
    """The pool in the quota's order: lists by language, of which each gives its best in turn."""
    lists = {language: sorted(np.flatnonzero(ids == language), key=lambda row: -scores[row]) for language in {*ids}}
    order = []
    while any(lists.values()):
        order += sorted((rows.pop(0) for rows in lists.values() if rows), key=lambda row: -scores[row])
    return order


def test_a_quota_takes_the_best_of_each_language_in_turn():
    queries, pool, _, ids, targets = pool_of()
    best = np.empty((30, 10), dtype=np.int64)
    counts = target_counts(queries, pool, targets, best, quota(ids))
    for query, row, top, count in zip(queries, targets, best, counts, strict=True):
        order = in_turn(pool @ query, ids)
        assert list(top) == order[:10]
        assert [order.index(target) + 1 if target >= 0 else 0 for target in row] == list(count)
    assert all({*ids[top[:3]]} == {0, 1, 2} for top in best)


def test_z_scores_are_of_all_pairs_of_two_languages():
    queries, pool, asked, ids, _ = pool_of()
    scores = queries @ pool.T
    expected = np.empty_like(scores)
    for a in range(3):
        for b in range(3):
            block = scores[np.ix_(asked == a, ids == b)].astype(np.float64)
            expected[np.ix_(asked == a, ids == b)] = (block - block.mean()) / block.std()
    adjust = z_scores(queries, pool, asked, ids)
    found = np.concatenate([adjust(scores[start : start + 7], slice(start, start + 7)) for start in range(0, 30, 7)])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_z_scores_undo_a_language_that_lies_apart():
    """The pool's second language scores lower by a constant: plain ranks it last, z-scores do not."""
    rng = np.random.default_rng(0)
    content = normalise(rng.standard_normal((40, 8)))
    mark = np.array([[1.0], [0.0]])
    pool = np.concatenate([np.hstack([content, np.full((40, 1), value[0])]) for value in mark])
    queries, targets = np.hstack([content, np.ones((40, 1))]), np.arange(40, 80)[:, None]
    ids = np.repeat([0, 1], 40)
    assert (target_counts(queries, pool, targets) > 5).mean() > 0.9
    adjusted = target_counts(queries, pool, targets, adjust=z_scores(queries, pool, np.zeros(40, dtype=int), ids))
    assert (adjusted <= 2).all()


@pytest.mark.parametrize("with_quota", [False, True])
def test_one_target_is_ranked_in_the_pool_without_the_others(with_quota):
    queries, pool, _, ids, targets = pool_of()
    found = one_target_ranks(queries, pool, targets, quota(ids) if with_quota else None)
    for row, query in enumerate(queries):
        for column, target in enumerate(targets[row]):
            kept = np.array([place for place in range(len(pool))
                             if place == target or place not in np.delete(targets[row], column)])  # fmt: skip
            scores = pool[kept] @ query
            order = in_turn(scores, ids[kept]) if with_quota else list(np.argsort(-scores))
            assert found[row, column] == (order.index(int(np.flatnonzero(kept == target)[0])) + 1 if target >= 0 else 0)
    if not with_quota:
        plain = one_target_precision(target_counts(queries, pool, targets))
        np.testing.assert_allclose(1 / found[found > 0], plain[found > 0])


def test_an_identity_adjustment_changes_nothing():
    queries, pool, _, _, targets = pool_of()
    plain = target_counts(queries, pool, targets)
    np.testing.assert_array_equal(plain, target_counts(queries, pool, targets, adjust=lambda scores, rows: scores))
    assert average_precision(plain).shape == (30,)


def test_mixing_lies_between():
    queries, partners = (normalise(np.random.default_rng(seed).standard_normal((5, 4))) for seed in (0, 1))
    np.testing.assert_allclose(mixed(queries, partners, 0.0), queries, atol=1e-6)
    np.testing.assert_allclose(mixed(queries, partners, 1.0), partners, atol=1e-6)
    half = mixed(queries, partners)
    np.testing.assert_allclose((half * queries).sum(axis=1), (half * partners).sum(axis=1), atol=1e-6)
