"""Ranks against a brute-force count and a sort, precision against mteb's own accuracy, AP against scikit-learn's."""

from __future__ import annotations

import tracemalloc

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from xalign_models.errors import DataError
from xalign_models.linalg import onednn
from xalign_models.ranking import ranks as scoring
from xalign_models.ranking.ranks import (
    POOL_BLOCK,
    TILE,
    average_precision,
    gold_ranks,
    nearest_others,
    normalise,
    one_target_precision,
    precision_at,
    target_counts,
)


def two_sides(n=60, d=12, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, d))
    return normalise(a), normalise(a + noise * rng.standard_normal((n, d)))


def test_rows_of_any_length_have_unit_length_and_usual_ones_keep_their_bits():
    rows = np.random.default_rng(0).standard_normal((6, 24)).astype(np.float32)
    usual = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scaled = rows * np.float32([[1], [1e25], [1e-30], [1e37], [1e-19], [0]])
    kept = scaled.copy()
    unit = normalise(scaled)
    assert unit[0].tobytes() == usual[0].tobytes()
    np.testing.assert_allclose(unit[:5], usual[:5], atol=1e-6)
    assert not unit[5].any()
    assert scaled.tobytes() == kept.tobytes()
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(normalise(np.full((1, 3), np.inf))).any()
    assert normalise(np.empty((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("n", [1, 2, 37, 60])
def test_ranks_equal_a_brute_force_sort_in_both_directions(n):
    a, b = two_sides(n)
    scores = a.astype(np.float64) @ b.astype(np.float64).T
    forward, backward = gold_ranks(a, b)
    for ranks, rows in ((forward, scores), (backward, scores.T)):
        order = np.argsort(-rows, axis=1)
        np.testing.assert_array_equal(ranks, [list(order[i]).index(i) + 1 for i in range(n)])
        np.testing.assert_array_equal(ranks, [rankdata(-rows[i], method="max")[i] for i in range(n)])


@pytest.mark.parametrize(("n", "d"), [(64, 16), (500, 384), (300, 768), (100, 4096)])
def test_a_repeated_sentence_counts_against_the_model(n, d):
    """Each counterpart stands twice on both sides, and nothing else comes near: every rank is 2, never 1."""
    a, _ = two_sides(n, d)
    twice = np.concatenate([a, a])
    for ranks in gold_ranks(twice, twice.copy(), tile=100):
        assert set(ranks) == {2}


@pytest.mark.parametrize("n", [254, 255, 256, 511, 1025, 2041])
def test_counts_do_not_overflow_where_everything_is_at_least_as_high(n):
    """All scores are equal, so that every count is n: more than a byte holds, in tiles of every size."""
    same = np.ones((n, 4), dtype=np.float32) / 2
    for tile in (TILE, 2040):
        for ranks in gold_ranks(same, same, tile):
            assert set(ranks) == {n}


@pytest.mark.parametrize("product", [onednn.product, lambda: None], ids=["oneDNN", "numpy"])
def test_scores_are_float32_to_their_last_digits_either_way(product, monkeypatch):
    monkeypatch.setattr(onednn, "product", product)
    a, b = two_sides(300, 384)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    np.testing.assert_allclose(scoring.scores_of(a, b), exact, rtol=0, atol=2e-6)


def test_all_ties_are_last():
    same = normalise(np.ones((9, 4)))
    assert all((ranks == 9).all() for ranks in gold_ranks(same, same))
    zeros = normalise(np.zeros((3, 4)))
    assert np.isfinite(zeros).all()
    assert all((ranks == 3).all() for ranks in gold_ranks(zeros, zeros))


@pytest.mark.parametrize("tile", [1, 7, 59, 60, 61, 1024])
def test_tiles_change_nothing(tile):
    a, b = two_sides()
    b[10] = b[20]  # a tie among the candidates
    for one, other in zip(gold_ranks(a, b, tile), gold_ranks(a, b, 30), strict=True):
        np.testing.assert_array_equal(one, other)


def test_swapping_the_sides_swaps_the_directions():
    a, b = two_sides()
    np.testing.assert_array_equal(gold_ranks(a, b)[0], gold_ranks(b, a)[1])


def test_precision_by_hand():
    assert precision_at(np.array([1, 2, 5, 6, 10, 11, 1, 1])) == {
        "precision_at_1": 3 / 8,
        "precision_at_5": 5 / 8,
        "precision_at_10": 7 / 8,
    }


def test_vectors_that_are_not_finite_have_no_precision():
    a, b = two_sides()
    for ranks in gold_ranks(np.full_like(a, np.nan), b):
        with pytest.raises(DataError, match="not finite"):
            precision_at(ranks)


class Fixed(AbsEncoder):
    """Gives the rows of a matrix for the texts 0, 1, ... of each column."""

    def __init__(self, sides):
        self.sides = sides
        self.model = None
        self.mteb_model_meta = ModelMeta.create_empty(
            {"name": "test/fixed", "revision": "1", "similarity_fn_name": ScoringFunction.COSINE}
        )

    def encode(self, inputs, **_):
        return np.stack([self.sides[text[0]][int(text[1:])] for batch in inputs for text in batch["text"]])


def test_precision_at_1_is_mtebs_accuracy():
    from mteb._evaluators.text.bitext_mining_evaluator import BitextMiningEvaluator
    from mteb.timing import TimingStack

    a, b = two_sides(200, 24, noise=2.0)
    model = Fixed({"a": 3 * a, "b": b / 2})  # any length: it is the cosine that counts
    pairs = [("a", "b"), ("b", "a")]
    rows = Dataset.from_dict({side: [f"{side}{i}" for i in range(200)] for side in "ab"})
    evaluator = BitextMiningEvaluator(
        rows,
        task_metadata=mteb.get_task("Tatoeba").metadata,
        hf_split="test",
        hf_subset="parallel",
        pair_columns=pairs,
        timer=TimingStack(),
    )
    found = evaluator(model, encode_kwargs={"batch_size": 32})
    for (x, y), ranks in zip(pairs, gold_ranks(normalise(3 * a), normalise(b / 2)), strict=True):
        accuracy = np.mean([one["corpus_id"] == i for i, one in enumerate(found[f"{x}-{y}"])])
        assert precision_at(ranks)["precision_at_1"] == accuracy
        assert 0.2 < accuracy < 0.9  # the numbers tell something


def pool_of(n, m, k, seed, levels=0):
    """Queries, a pool, 1 to k targets of each query; few ``levels`` give few distinct scores, so many ties."""
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.integers(-levels, levels + 1, shape)) if levels else rng.standard_normal
    queries, pool = (draw((rows, 7)).astype(np.float32) for rows in (n, m))
    targets = np.stack([rng.choice(m, k, replace=False) for _ in range(n)])
    targets[np.arange(k) >= rng.integers(1, k + 1, n)[:, None]] = -1
    return queries, pool, rng.permuted(targets, axis=1)


@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize(("n", "m", "k"), [(1, 1, 1), (30, 50, 11), (POOL_BLOCK + 3, 40, 5)])
def test_average_precision_is_scikit_learns_also_with_ties(n, m, k, levels):
    for seed in range(3):
        queries, pool, targets = pool_of(n, m, k, seed, levels)
        found = average_precision(target_counts(queries, pool, targets))
        for ap, row, own in zip(found, queries @ pool.T, targets, strict=True):
            relevant = np.isin(np.arange(m), own)
            assert ap == pytest.approx(average_precision_score(relevant, row), abs=1e-12)


def test_one_target_precision_is_that_of_a_pool_without_the_others():
    queries, pool, targets = pool_of(40, 60, 4, seed=0, levels=2)
    found = one_target_precision(target_counts(queries, pool, targets))
    assert np.isnan(found[targets < 0]).all()
    for i, j in zip(*np.nonzero(targets >= 0), strict=True):
        left = np.setdiff1d(np.arange(len(pool)), np.setdiff1d(targets[i], targets[i, j]))
        scores = pool[left] @ queries[i]
        assert found[i, j] == pytest.approx(average_precision_score(left == targets[i, j], scores), abs=1e-12)


def test_counts_hold_one_block_of_the_scores_and_no_more():
    queries, pool, targets = pool_of(16 * POOL_BLOCK, 3000, 3, seed=0)
    tracemalloc.start()
    target_counts(queries, pool, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = 4 * POOL_BLOCK * len(pool)
    assert peak < 1.5 * block  # the block, and the mask of one comparison with it
    assert 4 * len(queries) * len(pool) == 16 * block


def test_scores_that_are_given_are_the_ones_that_are_ranked():
    rng = np.random.default_rng(0)
    a, b = (normalise(rng.standard_normal((30, 5))) for _ in range(2))
    scores = rng.standard_normal((30, 30)).astype(np.float32)
    forward, backward = gold_ranks(a, b, 7, scores)
    np.testing.assert_array_equal(forward, (scores >= scores.diagonal()[:, None]).sum(1))
    np.testing.assert_array_equal(backward, (scores >= scores.diagonal()).sum(0))


def test_nearest_rows_are_numpys_without_the_querys_own():
    x = normalise(np.random.default_rng(0).standard_normal((40, 6)))
    scores = x @ x.T - 9 * np.eye(40)
    np.testing.assert_array_equal(nearest_others(x, x, np.arange(40), 10), np.argsort(-scores, axis=1)[:, :10])
    keys = np.arange(40) // 2
    np.testing.assert_array_equal(
        nearest_others(x, x, keys, 1, keys)[:, 0], np.where(keys[:, None] == keys, -9, x @ x.T).argmax(axis=1)
    )
    assert nearest_others(x[:1], x[:1], np.zeros(1, np.int64), 10).shape == (1, 0)
