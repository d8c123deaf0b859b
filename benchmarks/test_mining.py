"""Ranks of the counterparts: blocks and counting against mteb's evaluator and against sorting; both directions."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import rankdata

from benchmarks.roofline import mining_flops
from xalign_models.scoring import BLOCK, gold_ranks, normalise, precision_at

FLORES = 1012
"""Sentences of a language of FLORES-200's devtest."""


@pytest.fixture
def device() -> str:
    return "cpu"  # the scorer is numpy


def embeddings(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sides of a made-up parallel corpus, unit rows, about half of which find their counterpart."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, d))
    noise = np.sqrt(np.sqrt(d) / 3.5 - 1)  # a counterpart's cosine lies 3.5 deviations above the others'
    return tuple(normalise(shared + noise * rng.standard_normal((n, d))) for _ in range(2))


def throughput(n: int, d: int, seconds: float) -> dict[str, float]:
    return {
        "pairs_per_s": n * n / seconds,
        "language_pairs_per_s": 1 / seconds,
        "gflop_per_s": mining_flops(n, n, d) / seconds / 1e9,
    }


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("part", ["search", "search and metrics"])
@pytest.mark.parametrize("d", [384, 1024])
def test_against_mteb(compare, note, d, part):
    """mteb's own search, then what its bitext task computes of it (F1 and the like); P@1, 5, 10 on our side."""
    pytest.importorskip("mteb", reason="mteb is not installed")
    from mteb._evaluators import BitextMiningEvaluator
    from mteb.abstasks import AbsTaskBitextMining
    from mteb.similarity_functions import cos_sim

    class Cosine:
        similarity = staticmethod(cos_sim)

    a, b = embeddings(FLORES, d)
    gold = [(i, i) for i in range(FLORES)]

    def theirs():
        found = [BitextMiningEvaluator._similarity_search(None, x, y, Cosine()) for x, y in ((a, b), (b, a))]
        if part == "search":
            return [np.mean([one["corpus_id"] == i for i, one in enumerate(side)]) for side in found]
        return [AbsTaskBitextMining._compute_metrics(None, side, gold)["accuracy"] for side in found]

    def ours():
        return [precision_at(ranks)["precision_at_1"] for ranks in gold_ranks(a, b)]

    pair = compare(f"P@k of a language pair, n={FLORES} d={d}, both directions", ours, theirs, f"mteb's {part}", 9)
    assert 0.2 < min(pair.ours) <= max(pair.ours) < 1
    np.testing.assert_allclose(pair.ours, pair.theirs, rtol=0, atol=1e-6)
    note(**throughput(FLORES, d, pair.seconds), precision_at_1=pair.ours)


@pytest.mark.parametrize(("n", "d"), [(FLORES, 384), (2000, 384), (FLORES, 1024)])
def test_against_sorting(compare, note, n, d):
    a, b = embeddings(n, d)

    def theirs():
        scores = a @ b.T
        own = np.arange(n)[:, None]
        return [np.argmax(np.argsort(-side, axis=1) == own, axis=1) + 1 for side in (scores, scores.T)]

    pair = compare(f"ranks, n={n} d={d}, both directions", lambda: gold_ranks(a, b), theirs, "sorting")
    for ours, sorted_ in zip(pair.ours, pair.theirs, strict=True):
        assert np.abs(ours - sorted_).max() <= 1  # two products may round a near tie differently
        assert np.mean(ours == sorted_) > 0.99
    note(**throughput(n, d, pair.seconds))


@pytest.mark.parametrize("block", [7, BLOCK])
def test_ranks_are_exact_with_ties(benchmark, note, block):
    """Products of small integers are exact in float32, so that equal scores are equal: ties count against the model."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (FLORES, 16)).astype(np.float32) for _ in range(2))
    ranks = benchmark.pedantic(gold_ranks, (a, b, block), rounds=1)
    scores = a.astype(np.int64) @ b.astype(np.int64).T
    for found, side in zip(ranks, (scores, scores.T), strict=True):
        np.testing.assert_array_equal(found, rankdata(-side, method="max", axis=1).diagonal())
    ties = sum(FLORES - len(np.unique(row)) for row in scores)
    assert ties > FLORES
    note(tied_scores=ties)


def test_memory_is_a_block(benchmark, note, say):
    """The peak grows with n, not with n squared."""
    n, d = 8192, 64
    a, b = embeddings(n, d)

    def peak() -> int:
        tracemalloc.start()
        gold_ranks(a, b)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    used = benchmark.pedantic(peak, rounds=1)
    matrix, block = 4 * n * n, 4 * BLOCK * n
    note(peak_bytes=used, score_matrix_bytes=matrix)
    say(f"memory of ranks, n={n}: {used / 2**20:.0f} MiB; the score matrix alone is {matrix / 2**20:.0f} MiB")
    assert used < 2.5 * block  # a block, the one before it, and the mask of a comparison
