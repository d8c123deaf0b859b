"""Measures of neighbourhoods against plain formulas on the whole matrix, and what they say of planted ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import skew
from sklearn.metrics import f1_score

from xalign_models.errors import DataError
from xalign_models.ranking import neighbours
from xalign_models.ranking.neighbours import NAMES, K, measured_ranks, mutual_neighbours
from xalign_models.ranking.ranks import gold_ranks, normalise, precision_at


def two_sides(n, d=12, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, d)) + 1.5  # all means of neighbours are positive, as the margin asks for
    return normalise(a), normalise(a + noise * rng.standard_normal((n, d)))


def plainly(a, b):
    """The measures of a's rows as queries, by sorting."""
    scores = a.astype(np.float64) @ b.T.astype(np.float64)
    k = min(K, len(a))
    r_a, r_b = (-np.sort(-rows, axis=1)[:, :k].mean(axis=1) for rows in (scores, scores.T))
    csls = 2 * scores - r_a[:, None] - r_b
    margin = scores / ((r_a[:, None] + r_b) / 2)
    own = np.arange(len(a))
    others = np.where(np.eye(len(a), dtype=bool), -np.inf, scores)
    best, back = scores.argmax(axis=1), scores.argmax(axis=0)
    counts = np.bincount(np.argsort(-scores, axis=1)[:, :k].ravel(), minlength=len(b))
    gold = scores.diagonal()
    return [
        np.mean(csls.argmax(axis=1) == own),
        np.mean(margin.argmax(axis=1) == own),
        np.mean((gold > others.max(axis=1)) & (gold > others.max(axis=0))),
        np.mean(back[best] == own),
        skew(counts) if counts.std() else 0.0,
        np.mean(counts == 0),
        f1_score(own, best, average="weighted", zero_division=0),
    ]


@pytest.mark.parametrize("n", [2, 9, 10, 11, 127, 128, 129, 300, 515])
@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_measures_equal_their_formulas_in_both_directions(n, noise):
    a, b = two_sides(n, noise=noise)
    forward, backward, measures = measured_ranks(a, b)
    for found, expected in zip((forward, backward), gold_ranks(a, b), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(measures, [plainly(a, b), plainly(b, a)], atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("repeated", [0, 60])
def test_an_accelerator_finds_what_the_cpu_finds(device, repeated):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    a, b = two_sides(200)
    b[:repeated] = b[repeated : 2 * repeated]  # equal scores
    scores = torch.from_numpy(a @ b.T)
    sides = zip(neighbours._on_cpu(scores.numpy()), neighbours._on_accelerator(scores.to(device)), strict=True)
    for (hits, best, counts), expected in sides:
        np.testing.assert_allclose(hits, expected[0])
        np.testing.assert_array_equal(best, expected[1])
        np.testing.assert_array_equal(counts, expected[2])


def test_an_accelerator_counts_candidates_that_nobody_finds_too():
    scores = torch.from_numpy(np.random.default_rng(0).uniform(0, 1, (30, 30)).astype(np.float32))
    scores[:, -5:] = -1
    ((_, _, counts), _) = neighbours._on_accelerator(scores)
    assert counts.shape == (30,)
    assert not counts[-5:].any()


def test_csls_and_margin_undo_a_hub_that_cosine_falls_for():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((300, 30))
    b = a + 0.9 * rng.standard_normal(a.shape)
    a += 1.2
    b[:40] += 1.2  # candidates near the mean of all queries
    forward, _, (measures, _) = measured_ranks(normalise(a), normalise(b))
    found = dict(zip(NAMES, measures, strict=True))
    assert found["csls_precision_at_1"] > np.mean(forward == 1) + 0.1
    assert found["margin_precision_at_1"] > np.mean(forward == 1) + 0.1
    assert found["hubness_skewness"] > 1
    assert found["never_found"] > 0.2


def test_a_repeated_sentence_counts_against_the_model():
    a, _ = two_sides(50)
    twice = np.concatenate([a, a])
    measures = measured_ranks(twice, twice.copy())[2]
    np.testing.assert_array_equal(measures[:, :3], 0)


@pytest.mark.parametrize("row", [0, 5, 49])
def test_vectors_that_are_not_finite_are_refused_by_their_ranks(row):
    for side in range(2):
        sides = [rows.copy() for rows in two_sides(50)]
        sides[side][row] = np.nan
        forward, backward, measures = measured_ranks(*sides)
        assert np.isnan(measures).all()
        for ranks in (forward, backward):
            with pytest.raises(DataError, match="not finite"):
                precision_at(ranks)


def test_more_rows_than_are_held_are_ranked_and_not_measured(monkeypatch):
    monkeypatch.setattr(neighbours, "ROWS", 20)
    a, b = two_sides(30)
    forward, _, measures = measured_ranks(a, b)
    np.testing.assert_array_equal(forward, gold_ranks(a, b)[0])
    assert np.isnan(measures).all()


@pytest.mark.parametrize(("n", "m"), [(30, 50), (2500, 700)])
def test_mutual_neighbours_choose_each_other(n, m):
    a, b = two_sides(n)[0], two_sides(m, seed=1)[1]
    scores = a @ b.T
    best, back = scores.argmax(axis=1), scores.argmax(axis=0)
    expected = [i for i in range(n) if back[best[i]] == i]
    rows, columns = mutual_neighbours(a, b)
    assert rows.tolist() == expected
    np.testing.assert_array_equal(columns, best[expected])
