"""Ranks against a brute-force count and a sort, precision against mteb's own accuracy."""

from __future__ import annotations

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from scipy.stats import rankdata

from xalign_models.scoring import gold_ranks, normalise, precision_at


def two_sides(n=60, d=12, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, d))
    return normalise(a), normalise(a + noise * rng.standard_normal((n, d)))


@pytest.mark.parametrize("n", [1, 2, 37, 60])
def test_ranks_equal_a_brute_force_sort_in_both_directions(n):
    a, b = two_sides(n)
    scores = a.astype(np.float64) @ b.astype(np.float64).T
    forward, backward = gold_ranks(a, b)
    for ranks, rows in ((forward, scores), (backward, scores.T)):
        order = np.argsort(-rows, axis=1)
        np.testing.assert_array_equal(ranks, [list(order[i]).index(i) + 1 for i in range(n)])
        np.testing.assert_array_equal(ranks, [rankdata(-rows[i], method="max")[i] for i in range(n)])


@pytest.mark.parametrize(("n", "d"), [(64, 16), (500, 384), (300, 768)])
def test_a_repeated_sentence_counts_against_the_model(n, d):
    """Each counterpart stands twice on both sides, and nothing else comes near: every rank is 2, never 1."""
    a, _ = two_sides(n, d)
    twice = np.concatenate([a, a])
    for ranks in gold_ranks(twice, twice.copy(), block=100):
        assert set(ranks) == {2}


def test_all_ties_are_last():
    same = normalise(np.ones((9, 4)))
    assert all((ranks == 9).all() for ranks in gold_ranks(same, same))
    zeros = normalise(np.zeros((3, 4)))
    assert np.isfinite(zeros).all()
    assert all((ranks == 3).all() for ranks in gold_ranks(zeros, zeros))


@pytest.mark.parametrize("block", [1, 7, 59, 60, 61, 1024])
def test_blocks_change_nothing(block):
    a, b = two_sides()
    b[10] = b[20]  # a tie among the candidates
    for one, other in zip(gold_ranks(a, b, block), gold_ranks(a, b, 30), strict=True):
        np.testing.assert_array_equal(one, other)


def test_swapping_the_sides_swaps_the_directions():
    a, b = two_sides()
    np.testing.assert_array_equal(gold_ranks(a, b)[0], gold_ranks(b, a)[1])


def test_precision_by_hand():
    assert precision_at(np.array([1, 2, 5, 6, 10, 11, 1, 1])) == {
        "precision_at_1": 3 / 8, "precision_at_5": 5 / 8, "precision_at_10": 7 / 8,
    }  # fmt: skip


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
        rows, task_metadata=mteb.get_task("Tatoeba").metadata, hf_split="test", hf_subset="parallel",
        pair_columns=pairs, timer=TimingStack(),
    )  # fmt: skip
    found = evaluator(model, encode_kwargs={"batch_size": 32})
    for (x, y), ranks in zip(pairs, gold_ranks(normalise(3 * a), normalise(b / 2)), strict=True):
        accuracy = np.mean([one["corpus_id"] == i for i, one in enumerate(found[f"{x}-{y}"])])
        assert precision_at(ranks)["precision_at_1"] == accuracy
        assert 0.2 < accuracy < 0.9  # the numbers tell something
