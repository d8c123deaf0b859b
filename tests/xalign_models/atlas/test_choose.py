"""Choosing: a planted best model is found, ties and guesses are said, and what is unknown does not count as fitting."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.atlas.choose import PULL, Wish, choose, fit
from xalign_models.atlas.relatives import Relative, nearest
from xalign_models.atlas.table import Atlas, Column, PublishedModel
from xalign_models.errors import LanguageError, ModelError

LANGUAGES = ("deu-Latn", "rus-Cyrl", "swh-Latn")
MODELS = tuple(f"org/m{number}" for number in range(20))


def logistic(x):
    return 1 / (1 + np.exp(-x))


def column(task: str, quality: np.ndarray, models=MODELS, languages=LANGUAGES, kind="retrieval", noise=0.0, seed=0):
    """One language alone, no pairs; ``quality`` (models,) on the logit scale."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(languages), 5), dtype=np.int16)
    counts[:, 0] = 1
    scores = np.full((len(models), len(languages), 5), np.nan)
    scores[:, :, 0] = logistic(np.asarray(quality) + rng.normal(0, noise, len(models)))[:, None]
    same = ("r",) * len(models)
    return Column(task, kind, f"text of {task}", "test", "f1", tuple(models), same, same, languages, counts, scores)


def atlas(*columns: Column, about=()) -> Atlas:
    names = {model for table in columns for model in table.models}
    models = {name: PublishedModel(name) for name in sorted(names)} | {model.name: model for model in about}
    return Atlas(models, columns, {}, 0, {})


QUALITY = np.linspace(-1, 1, len(MODELS))


def test_the_best_model_is_first_and_its_equals_are_tied():
    columns = [column(f"T{seed}", QUALITY, noise=0.1, seed=seed) for seed in range(6)]
    found = choose(atlas(*columns), Wish(("deu-Latn", "swh-Latn")))
    assert found.candidates[0].model in MODELS[-3:]
    tied = [candidate.model for candidate in found.candidates if candidate.tied]
    assert set(tied) <= set(MODELS[-6:])
    first = found.candidates[0]
    assert first.low < first.score < first.high
    assert first.tasks.keys() == set(found.evidence)


def test_noisier_tasks_tie_more_models():
    def tied(noise: float) -> int:
        columns = [column(f"T{seed}", QUALITY, noise=noise, seed=seed) for seed in range(4)]
        return sum(candidate.tied for candidate in choose(atlas(*columns), Wish(("deu-Latn",))).candidates)

    assert tied(0.02) < tied(0.5)


def test_a_model_of_easy_tasks_gains_nothing():
    """Scores of 0.9 on the easy task are worth less than 0.6 on the hard one, where the others have 0.5."""
    hard = column("Hard", np.r_[0.4, np.zeros(18), 0.0])
    easy = column("Easy", np.r_[np.full(18, 2.2), 2.2, 2.0], models=(*MODELS[1:], "org/easy"))
    found = choose(atlas(hard, easy), Wish(("deu-Latn",)))
    order = [candidate.model for candidate in found.candidates]
    assert order[0] == "org/m0"
    assert order[-1] == "org/easy"


def test_the_fit_recovers_an_additive_table_with_gaps():
    rng = np.random.default_rng(0)
    quality, difficulty = rng.normal(size=30), rng.normal(size=200)
    table = difficulty[:, None] + quality
    table[rng.random(table.shape) < 0.5] = np.nan
    found, error, _ = fit(table, np.ones(200))
    assert np.allclose(found - found.mean(), quality - quality.mean(), atol=3 * PULL / 100)
    assert error.max() < 0.02


def test_a_task_of_another_kind_counts_less():
    rise = column("Bitext", QUALITY, kind="bitext")
    fall = column("Retrieval", -QUALITY)
    best = {
        kind: choose(atlas(rise, fall), Wish(("deu-Latn",), kind)).candidates[0].model
        for kind in ("bitext", "retrieval")
    }
    assert best == {"bitext": MODELS[-1], "retrieval": MODELS[0]}


def test_tasks_without_common_models_are_not_compared():
    other = column("Other", np.full(12, 5.0), models=tuple(f"lab/m{number}" for number in range(12)))
    found = choose(atlas(column("Task", QUALITY), other), Wish(("deu-Latn",)))
    assert {candidate.model for candidate in found.candidates} == {*MODELS}
    assert found.notes[0].startswith("12 models share no task with the others for these languages and are not ranked.")
    tie = column("Other", np.full(13, 5.0), models=(*other.models, MODELS[0]))
    found = choose(atlas(column("Task", QUALITY), tie), Wish(("deu-Latn",)))
    assert len(found.candidates) == len(MODELS) + 12  # one model of both ties them


def test_limits_leave_out_what_is_larger_and_what_is_unknown():
    about = [
        PublishedModel(MODELS[0], parameters=10**8, dimension=384, licence="MIT"),
        PublishedModel(MODELS[1], parameters=10**10, dimension=384, licence="mit"),
        PublishedModel(MODELS[2], parameters=10**8, dimension=1024, licence="mit"),
        PublishedModel(MODELS[3], parameters=10**8, dimension=384, licence="cc-by-nc-4.0"),
    ]
    table = atlas(column("Task", QUALITY), about=about)
    found = choose(table, Wish(("deu-Latn",), None, 6 * 10**8, "permissive", 768))
    assert [candidate.model for candidate in found.candidates] == [MODELS[0]]
    assert found.notes[0].startswith("16 models are left out")
    with pytest.raises(ModelError, match="--max-params"):
        choose(table, Wish(("deu-Latn",), None, 1000))


def test_a_language_without_scores_is_guessed_from_a_relative_and_said(families):
    found = choose(atlas(column("Task", QUALITY)), Wish(("ukr-Cyrl", "deu-Latn")))
    assert found.guessed == {"ukr-Cyrl": Relative("rus-Cyrl", "family and script")}
    assert found.coverage == {"ukr-Cyrl": 0, "deu-Latn": 1}


def test_a_language_without_a_relative_is_missing(families):
    found = choose(atlas(column("Task", QUALITY)), Wish(("kat-Geor", "deu-Latn")))
    assert (found.guessed, found.missing) == ({}, ("kat-Geor",))
    with pytest.raises(LanguageError, match="kat-Geor"):
        choose(atlas(column("Task", QUALITY)), Wish(("kat-Geor",)))


def test_a_held_out_task_is_no_evidence():
    columns = [column("A", QUALITY), column("B", -QUALITY)]
    found = choose(atlas(*columns), Wish(("deu-Latn",)), without=["A"])
    assert [label.split("@")[0] for label in found.evidence] == ["B"]
    assert found.candidates[0].model == MODELS[0]


def test_wrong_wishes_are_refused():
    with pytest.raises(LanguageError, match="--languages"):
        Wish(())
    with pytest.raises(ModelError, match="--task chat: one of retrieval, bitext"):
        Wish(("deu-Latn",), "chat")


@pytest.fixture
def families(monkeypatch):
    from xalign_models.atlas import relatives

    slavic, germanic = ["Indo-European", "Balto-Slavic"], ["Indo-European", "Germanic"]
    known = {"rus": slavic, "ukr": slavic, "pol": slavic, "deu": germanic, "kat": ["Kartvelian"], "swh": ["Bantu"]}

    def family(language):
        if language[:3] not in known:
            raise LanguageError(f"{language} has no family")
        return known[language[:3]][-1]

    monkeypatch.setattr(relatives, "family", family)


def test_the_nearest_shares_family_and_script_before_family(families):
    assert nearest("ukr-Cyrl", ["deu-Latn", "pol-Latn", "rus-Cyrl"]) == Relative("rus-Cyrl", "family and script")
    assert nearest("ukr-Cyrl", ["deu-Latn", "pol-Latn"]) == Relative("pol-Latn", "family")
    assert nearest("rus-Latn", ["pol-Latn", "rus-Cyrl"]) == Relative("rus-Cyrl", "language")
    assert nearest("swh-Latn", ["deu-Latn"]) is None  # the Latin script alone says nothing
    assert nearest("kaz-Cyrl", ["deu-Latn", "rus-Cyrl"]) == Relative(
        "rus-Cyrl", "script"
    )  # no family is known: the script decides
