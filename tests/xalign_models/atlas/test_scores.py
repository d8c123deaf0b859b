"""The table of measured and predicted scores: what is measured is shown, what is not is predicted and says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.xalign_models.atlas.made_up import LANGUAGES, atlas, column
from xalign_models.atlas.choose import Wish, choose
from xalign_models.atlas.scores import estimate, scores_of, with_models, with_table
from xalign_models.atlas.table import PublishedModel, load_atlas, save
from xalign_models.errors import ResultsError

QUALITY = np.linspace(-1.5, 1.5, 40)


@pytest.fixture(scope="module")
def table():
    """Three tasks of retrieval and one of clustering; the last task lacks the best ten models, and one has trained."""
    columns = [column(f"T{seed}", QUALITY, noise=0.15, seed=seed) for seed in range(2)]
    columns.append(column("Late", QUALITY[:30], models=30, noise=0.15, seed=2))
    columns.append(column("Groups", -QUALITY, kind="clustering", noise=0.15, seed=3))
    made = atlas(*columns, about=[PublishedModel("org/m29", trained_on=("T0",))])
    return with_table(made, estimate(made))


def test_a_score_measured_whole_is_the_mean_of_its_tasks(table):
    row = scores_of(table).row("retrieval", LANGUAGES[0])
    expected = np.mean([c.scores[:30, 0, 0] for c in table.columns if c.kind == "retrieval"], axis=0)
    places = [scores_of(table).models.index(f"org/m{number:02}") for number in range(30)]
    assert row.score[places] == pytest.approx(expected, abs=2e-3)
    np.testing.assert_array_equal(row.measured[places], 3)
    np.testing.assert_allclose(row.low[places], row.high[places])
    np.testing.assert_allclose(row.cautious[places], row.score[places])


def test_what_is_not_measured_has_an_interval_around_a_good_guess(table):
    scores = scores_of(table)
    row = scores.row("retrieval", LANGUAGES[0])
    places = [scores.models.index(f"org/m{number:02}") for number in range(30, 40)]
    truth = 1 / (1 + np.exp(-QUALITY[30:]))
    assert (row.low < row.high)[places].all()
    assert ((row.low[places] <= truth) & (truth <= row.high[places])).mean() >= 0.7
    assert row.score[places] == pytest.approx(truth, abs=0.08)
    centre, width = (np.log(row.score / (1 - row.score)), np.log(row.high / (1 - row.high)))
    marked_down = 1 / (1 + np.exp(0.3 * (width - centre) ** 2 - centre))
    np.testing.assert_allclose(row.cautious[places], marked_down[places])


def test_training_is_counted_and_taken_off_on_request(table):
    scores = replace(scores_of(table), effects=np.ones(5))
    at = scores.models.index("org/m29")
    assert scores.row("retrieval", LANGUAGES[0]).trained[at] == 1
    plain, adjusted = (scores.row("retrieval", LANGUAGES[0], adjusted=flag).score for flag in (False, True))
    assert np.flatnonzero(plain - adjusted > 1e-9).tolist() == [at]
    logits = [float(np.log(x[at] / (1 - x[at]))) for x in (plain, adjusted)]
    assert logits[0] - logits[1] == pytest.approx(1 / 3)  # one of three tasks


def test_many_tasks_of_a_language_are_counted():
    """In English, mteb has hundreds of retrieval tasks."""
    columns = [column(f"T{seed:03}", QUALITY, noise=0.15, seed=seed) for seed in range(20)]
    made = atlas(*columns, about=[PublishedModel("org/m03", trained_on=("T000", "T019"))])
    scores = estimate(made, scores_of(load_atlas()))
    row = scores.row("retrieval", LANGUAGES[0])
    np.testing.assert_array_equal(row.measured, 20)
    np.testing.assert_array_equal(np.flatnonzero(row.trained), scores.models.index("org/m03"))
    assert row.trained.max() == 2
    np.testing.assert_array_equal(row.low, row.high)


def test_kinds_are_asked_for_apart(table):
    first = {
        kind: choose(table, Wish((LANGUAGES[0],), kind)).candidates[0].model for kind in ("retrieval", "clustering")
    }
    assert first["retrieval"] > "org/m34"
    assert first["clustering"] < "org/m05"


def test_a_new_model_is_placed_and_moves_no_other(table):
    quality = np.append(QUALITY, 1.9)
    bigger = atlas(
        *(column(c.task, quality, kind=c.kind, noise=0.15, seed=seed) for seed, c in enumerate(table.columns))
    )
    joined = with_models(scores_of(table), table, bigger, ["org/m40"])
    before, after = (scores.row("retrieval", LANGUAGES[0]) for scores in (scores_of(table), joined))
    np.testing.assert_array_equal(after.score[:-1], before.score)
    np.testing.assert_array_equal(after.low[:-1], before.low)
    assert after.score[-1] == pytest.approx(1 / (1 + np.exp(-1.9)), abs=0.06)
    assert joined.row("retrieval", "ukr-Cyrl").score[-1] > 0.7  # a language that no task has


def test_a_new_model_has_the_intervals_of_one_with_the_same_scores(table):
    twins = (
        replace(
            c,
            models=(*c.models, "org/twin"),
            revisions=(*c.revisions, "r"),
            versions=(*c.versions, "1.0"),
            scores=np.concatenate([c.scores, c.scores[[c.row["org/m35"]]]]),
        )
        if "org/m35" in c.row
        else c
        for c in table.columns
    )
    joined = with_models(scores_of(table), table, atlas(*twins), ["org/twin"])
    row, at = joined.row("retrieval", LANGUAGES[0]), joined.models.index("org/m35")
    assert row.low[at] < row.score[at] - 0.01
    for part in (row.score, row.low, row.high, row.cautious):
        assert part[-1] == pytest.approx(part[at], abs=2e-3)


@pytest.mark.parametrize(("noise", "first"), [(0.1, True), (0.5, False)])
def test_a_model_of_one_task_is_first_only_where_tasks_agree(noise, first):
    """It is ahead on its one task; how much that says of the others depends on how much tasks agree."""
    others = (column(f"T{n}", QUALITY, noise=noise, seed=n) for n in (1, 2))
    made = atlas(column("T0", np.append(QUALITY, 1.7)), *others)
    made = with_table(made, estimate(made))
    assert (choose(made, Wish((LANGUAGES[0],), "retrieval")).candidates[0].model == "org/m40") == first


def test_the_table_is_saved_with_the_atlas(table, tmp_path):
    save(table, tmp_path / "table.npz")
    row, again = (scores_of(t).row("clustering", "swh-Latn") for t in (table, load_atlas(tmp_path / "table.npz")))
    for part in range(len(row)):
        np.testing.assert_allclose(row[part], again[part])


def test_an_atlas_without_a_table_says_what_to_do():
    with pytest.raises(ResultsError, match="xalign atlas update"):
        scores_of(atlas(column("T", QUALITY)))


def test_a_table_of_an_earlier_version_says_the_same(table):
    with pytest.raises(ResultsError, match="xalign atlas update"):
        scores_of(replace(table, table={**table.table, "scales": np.ones(6)}))


def test_every_language_of_flores_has_a_score_of_every_kind():
    scores = scores_of(load_atlas())
    assert len(scores.models) == len(load_atlas().models)
    for kind in ("retrieval", "bitext", "sts", "classification", "clustering"):
        for code in ("quy-Latn", "kat-Geor", "haw-Latn", "swh-Latn"):
            row = scores.row(kind, code)
            ends = np.stack([np.zeros_like(row.low), row.low, row.score, row.high, np.ones_like(row.low)])
            assert (np.diff(ends, axis=0) >= -1e-9).all()
            assert ((row.score > 0) & (row.score < 1)).all()
