"""Language bias: shares among the ten best by hand, agreement of ranks as scipy's, both on planted spaces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from xalign_models.ranking.ranks import normalise, target_counts
from xalign_tasks.lareqa.bias import language_preference, language_shares, rank_agreement

LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")


def pool(mark, n=40, d=16, seed=0):
    """Questions and candidates of n meanings in three languages, each moved along a direction of its own."""
    rng = np.random.default_rng(seed)
    content = rng.standard_normal((n, d))
    moved = [content + mark * 3 * np.eye(d)[i] + 0.3 * rng.standard_normal((n, d)) for i in range(3)]
    rows = normalise(np.concatenate(moved))
    targets = np.tile(np.arange(n)[:, None] + n * np.arange(3), (3, 1))
    best = np.empty((3 * n, 10), dtype=np.int64)
    counts = target_counts(rows, rows, targets, best)
    return np.repeat(np.arange(3), n), counts, best, rows


def test_the_best_candidates_are_those_of_a_sort():
    _, _, best, rows = pool(1)
    np.testing.assert_array_equal(best, np.argsort(-(rows @ rows.T), axis=1, kind="stable")[:, :10])


def test_a_language_that_is_marked_finds_itself_and_one_that_is_not_finds_all():
    found = {}
    for mark in (0, 5):
        asked, _, best, _ = pool(mark)
        found[mark] = language_shares(asked, best, asked, LANGUAGES)
    for language in LANGUAGES:
        assert found[5][language]["own_language_in_top_10"] == pytest.approx(3)
        assert 0.8 < found[0][language]["own_language_in_top_10"] < 1.3
    assert found[5]["eng-Latn"]["english_in_top_10"] == pytest.approx(3)
    assert found[5]["deu-Latn"]["english_in_top_10"] == 0


def test_shares_by_hand():
    of_pool = np.array([0, 0, 0, 1])  # three German candidates, one English
    found = language_shares(np.array([0, 1]), np.array([[0, 3], [1, 2]]), of_pool, ("deu-Latn", "eng-Latn"))
    assert found["deu-Latn"] == {"own_language_in_top_10": pytest.approx(0.5 / 0.75), "english_in_top_10": 0.5 / 0.25}
    assert found["eng-Latn"] == {"own_language_in_top_10": 0, "english_in_top_10": 0}


def test_agreement_is_scipys_correlation_and_high_where_language_alone_orders_the_answers():
    rng = np.random.default_rng(0)
    ranks = rng.integers(1, 50, (3 * 20, 5))
    ranks[:, 4] = np.tile(np.r_[np.zeros(10, dtype=int), np.full(10, 7)], 3)  # an answer that half of them lack
    ids = [str(i) for i in range(20)]
    found = rank_agreement(dict.fromkeys(LANGUAGES, ids), ranks)
    for i, language in enumerate(LANGUAGES):
        expected = [
            spearmanr(ranks[i * 20 + q][ranks[q] > 0], ranks[j * 20 + q][ranks[q] > 0]).statistic
            for j in range(3)
            if j != i
            for q in range(20)
        ]
        assert found[language] == pytest.approx(np.mean(expected))
    same = np.tile(rng.permuted(np.tile(np.arange(1, 6), (20, 1)), axis=1), (3, 1))
    assert rank_agreement(dict.fromkeys(LANGUAGES, ids), same) == dict.fromkeys(LANGUAGES, pytest.approx(1))
    assert rank_agreement(dict.fromkeys(LANGUAGES, ids), np.full((60, 5), 3)) == {}


def test_language_ndcg_is_scikit_learns_and_the_four_shares_are_a_whole():
    asked, ranks, best, rows = pool(1)
    found = language_preference(asked, ranks, asked[best[:, 0]], LANGUAGES)
    scores = rows @ rows.T
    for index, language in enumerate(LANGUAGES):
        values = []
        for row in np.flatnonzero(asked == index):
            gains = np.where(np.arange(120) % 40 == row % 40, 0.5, 0.0)
            gains[40 * index + row % 40] = 1
            values.append(ndcg_score(gains[None], scores[None, row], k=10))
        assert found[language]["lang_ndcg_at_10"] == pytest.approx(np.mean(values))
        four = [found[language][f"{hit}_{whose}_language"] for hit in ("right", "wrong") for whose in ("own", "other")]
        assert sum(four) == pytest.approx(1)


def test_a_question_prefers_its_own_language_as_far_as_that_is_marked():
    ranks = {}
    for mark in (0, 5):
        rng = np.random.default_rng(0)
        asked = np.repeat(np.arange(3), 400)
        noise = rng.standard_normal((1200, 3))
        noise[np.arange(1200), asked] += mark
        ranks[mark] = (-noise).argsort(axis=1).argsort(axis=1) + 1
    for mark, low, high in ((0, 0.26, 0.41), (5, 0.98, 1)):
        found = language_preference(asked, ranks[mark], ranks[mark].argmin(axis=1), LANGUAGES)
        assert all(low < found[language]["own_language_first"] <= high for language in LANGUAGES)
    assert found["eng-Latn"]["right_own_language"] == found["eng-Latn"]["own_language_first"]


def test_preference_by_hand():
    asked = np.array([0, 0, 0, 1])
    ranks = np.array([[1, 2, 0], [3, 1, 2], [5, 0, 0], [0, 1, 12]])  # the third has no translation
    found = language_preference(asked, ranks, np.array([0, 1, 2, 1]), LANGUAGES)
    ideal = [1 + 0.5 / np.log2(3), 1 + 0.5 / np.log2(3) + 0.25]
    two = [1, (0.5 + 0.5 / np.log2(3) + 0.5) / ideal[1]]
    assert found["deu-Latn"] == pytest.approx(
        {
            "own_language_first": 0.5,
            "lang_ndcg_at_10": np.mean(two),
            "right_own_language": 0.5,
            "right_other_language": 0.5,
            "wrong_own_language": 0,
            "wrong_other_language": 0,
        }
    )
    assert found["eng-Latn"]["lang_ndcg_at_10"] == pytest.approx(1 / ideal[0])  # a translation at rank 12 is not found
    assert "fra-Latn" not in found
