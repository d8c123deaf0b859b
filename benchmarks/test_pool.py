"""LAReQA's scoring: time and memory of average precision against one pool of all languages."""

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from xalign_models.ranking.ranks import POOL_BLOCK, average_precision, normalise, one_target_precision, target_counts

QUESTIONS, CANDIDATES, LANGUAGES = 13_090, 13_014, 11
"""Sizes of XQuAD-R."""


def pool_of(questions: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Made-up unit rows; a question is nearer to its eleven answers than to most other candidates."""
    rng = np.random.default_rng(0)
    pool = normalise(rng.standard_normal((CANDIDATES, d), dtype=np.float32))
    targets = np.stack([rng.choice(CANDIDATES, LANGUAGES, replace=False) for _ in range(questions)])
    noise = rng.standard_normal((questions, d), dtype=np.float32)
    return normalise(pool[targets].sum(axis=1) + 0.3 * noise), pool, targets


@pytest.mark.parametrize("d", [384, 1024])
def test_all_of_xquad_r(clocked, note, d):
    """The whole task's scoring: counts, AP and the heat map's cells; the protocol's limit is three minutes."""
    queries, pool, targets = pool_of(QUESTIONS, d)

    def score():
        counts = target_counts(queries, pool, targets)
        return average_precision(counts).mean(), np.nanmean(one_target_precision(counts))

    found, seconds = clocked(score)
    tracemalloc.start()
    target_counts(queries, pool, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    matrix, block, counts = 4 * QUESTIONS * CANDIDATES, 4 * POOL_BLOCK * CANDIDATES, 8 * targets.size
    gflops = 2 * QUESTIONS * CANDIDATES * d / 1e9
    note(seconds=seconds, peak_bytes=peak, score_matrix_bytes=matrix, gflop_per_s=gflops / seconds, mean_ap=found[0])
    assert 0 < found[0] < 1
    assert peak < 1.5 * block + 2 * counts
    assert seconds < 180


@pytest.mark.quick
def test_against_scikit_learn(compare):
    queries, pool, targets = pool_of(POOL_BLOCK, 384)

    def theirs():
        scores = queries @ pool.T
        relevant = np.zeros(scores.shape, dtype=np.bool_)
        np.put_along_axis(relevant, targets, True, axis=1)
        return [average_precision_score(*pair) for pair in zip(relevant, scores, strict=True)]

    pair = compare(lambda: average_precision(target_counts(queries, pool, targets)), theirs, "scikit-learn", 3)
    np.testing.assert_allclose(pair.ours, pair.theirs, rtol=0, atol=1e-9)
