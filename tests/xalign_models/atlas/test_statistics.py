"""Statistics of evenness: planted effects come back, and chance is told from difference."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.atlas.statistics import association, levels, rank_groups, summarise, with_intervals
from xalign_models.atlas.table import Atlas, Column

LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn", "rus-Cyrl", "yor-Latn")
NAMED = {"deu": 50, "fra": 50, "rus": 40, "eng": 90, "yor": 3}


def column(scores: np.ndarray, kind: str = "retrieval") -> Column:
    counts = np.ones((len(LANGUAGES), 5), dtype=np.int16)
    counts[1, 1:3] = 0  # English has no pairs with itself
    scores = np.where(counts > 0, scores, np.nan)
    models = tuple(f"org/m{row}" for row in range(len(scores)))
    known = ("r",) * len(scores)
    return Column("Task", kind, "d", "test", "f1", models, known, known, LANGUAGES, counts, scores)


def atlas(*columns: Column) -> Atlas:
    return Atlas({}, columns, NAMED, 90, {})


def of(scores: np.ndarray, kind: str = "retrieval"):
    table = column(scores, kind)
    return levels(atlas(table), table)


def planted() -> np.ndarray:
    """Same, from English into, into English, others into, others from; Yoruba is 0.4 lower in every pair."""
    scores = np.tile([0.9, 0.8, 0.6, 0.5, 0.5], (1, len(LANGUAGES), 1))
    scores[:, 4, 1:] -= 0.4
    return scores


def test_planted_effects_come_back():
    found = {name: value[0] for name, value in summarise(of(planted())).items()}
    assert found["level"] == pytest.approx((3 * 0.7 + 0.3) / 4)
    assert found["english_centricity"] == pytest.approx(0.7 - 0.5)
    assert found["asymmetry"] == pytest.approx(0.2)
    assert found["gap"] == pytest.approx(0.9 - (3 * 0.7 + 0.3) / 4)
    assert found["spread"] == pytest.approx(np.std([0.7, 0.7, 0.7, 0.3]))
    assert found["script_spread"] == pytest.approx(np.std([(0.7 + 0.7 + 0.3) / 3, 0.7]))
    assert found["worst_tenth"] == pytest.approx(0.3)
    assert found["evenness"] == pytest.approx(0.3 / 0.6)
    assert found["low_resource_gap"] == pytest.approx(0.4)


def test_an_even_model_is_even():
    found = {name: value[0] for name, value in summarise(of(np.full((1, 5, 5), 0.7))).items()}
    assert found.pop("level") == pytest.approx(0.7)
    assert found.pop("worst_tenth") == pytest.approx(0.7)
    assert found.pop("evenness") == pytest.approx(1)
    assert np.allclose(list(found.values()), 0)


def test_a_similarity_has_no_asymmetry():
    assert np.isnan(summarise(of(planted(), kind="sts"))["asymmetry"]).all()


def test_a_model_that_lacks_a_language_is_left_out():
    scores = np.concatenate([planted(), planted()])
    scores[1, 2, 1] = np.nan
    assert of(scores).models == ("org/m0",)


def test_intervals_contain_the_value_and_shrink_with_agreement():
    found = with_intervals(of(planted()), draws=200)
    value, low, high = (part[0] for part in found["level"])
    assert low <= value <= high
    assert high - low > 0.1
    assert all(high[0] - low[0] < 1e-9 for _, low, high in [found["asymmetry"]])  # the same in every language


def test_models_apart_in_every_language_are_in_groups_of_their_own():
    noise = np.random.default_rng(0).normal(0, 0.2, 60)  # languages differ, alike for all models
    ranked = rank_groups(["low", "high", "mid"], np.stack([noise, noise + 0.2, noise + 0.1]))
    assert [(row.model, row.rank, row.lowest, row.highest, row.group) for row in ranked] == [
        ("high", 1, 1, 1, 1),
        ("mid", 2, 2, 2, 2),
        ("low", 3, 3, 3, 3),
    ]


def test_models_that_differ_by_chance_share_a_group():
    level = np.random.default_rng(1).normal(0.5, 0.1, (2, 50))
    far = level[:1] - 0.5
    ranked = rank_groups(["a", "b", "far"], np.concatenate([level, far]))
    assert [row.group for row in ranked] == [1, 1, 2]
    assert {row.highest for row in ranked[:2]} == {2}


def test_equal_models_are_seldom_split():
    """30 equal models on 60 languages: without Holm's correction, nearly every ranking is split."""
    rng, names = np.random.default_rng(2), [f"m{number}" for number in range(30)]
    split = [
        rank_groups(names, rng.normal(0, 1, 60) + rng.normal(0, 0.3, (30, 60)), draws=5)[-1].group > 1
        for _ in range(100)
    ]
    assert np.mean(split) <= 0.08


def test_association_is_the_rank_correlation():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    names = [str(number) for number in range(len(x) + 1)]
    found = association(np.append(x, np.nan), np.append(y, 1.0), names)
    assert found.models == 60
    assert found.rho == pytest.approx(spearmanr(x, y).statistic)
    assert found.low < found.rho < found.high
    assert association(x[:4], y[:4], names[:4]) is None
