"""Measured results stand beside published ones where they are the same thing, and apart where they are not."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from xalign_models.atlas.derive import columns_of
from xalign_models.atlas.imported import read_public
from xalign_models.atlas.measured import SAME_TEXT, with_measured
from xalign_models.atlas.table import Atlas
from xalign_models.results.reading import read_results

PAIRS = {"deu_Latn-eng_Latn": 0.9, "fra_Latn-eng_Latn": 0.7}


def published(write_result, tmp_path) -> Atlas:
    write_result("org/model", PAIRS)
    atlas = Atlas({}, tuple(columns_of(read_public(tmp_path).results, {"NTREXBitextMining": "bitext"})), {}, 0, {})
    (tmp_path / "results").rename(tmp_path / "published")
    return atlas


def test_the_same_text_and_metric_share_a_column(write_result, tmp_path):
    atlas = published(write_result, tmp_path)
    write_result("xalign/lsar__e5", {"deu_Latn-eng_Latn": 0.8})
    (column,) = with_measured(atlas, read_results(tmp_path)).columns
    assert column.models == ("org/model", "xalign/lsar__e5")
    assert column.measured == {"xalign/lsar__e5"}
    german, french = (column.languages.index(code) for code in ("deu-Latn", "fra-Latn"))
    assert column.scores[:, german, 2].tolist() == [0.9, 0.8]
    assert np.isnan(column.scores[1, french]).all()
    assert np.isnan(column.scores[1, column.languages.index("eng-Latn")]).all()  # its mean is of fewer languages


def test_another_metric_or_text_has_a_column_of_its_own(write_result, tmp_path):
    atlas = published(write_result, tmp_path)
    write_result("xalign/a__e5", PAIRS, metric="precision_at_1")
    write_result("xalign/b__e5", PAIRS, text="d2")
    columns = with_measured(atlas, read_results(tmp_path)).columns
    assert [(column.metric, column.dataset_revision, bool(column.measured)) for column in columns] == [
        ("f1", "d1", False),
        ("precision_at_1", "d1", True),
        ("f1", "d2", True),
    ]


def test_text_under_another_name_shares_the_column_of_its_published_one(write_result, tmp_path):
    (ours, text), (task, revision) = next(item for item in SAME_TEXT.items() if item[0][0] == "STS17CrossLingual")
    pairs = {"spa_Latn-eng_Latn": 0.8, "eng_Latn-eng_Latn": 0.9}
    write_result("org/model", pairs, task=task, text=revision, metric="cosine_spearman")
    atlas = Atlas({}, tuple(columns_of(read_public(tmp_path).results, {task: "sts"})), {}, 0, {})
    (tmp_path / "results").rename(tmp_path / "published")
    write_result("xalign/lsar__e5", pairs, task=ours, text=text, metric="cosine_spearman")
    write_result("xalign/lsar__e5", pairs, task=task, text="other", metric="cosine_spearman")
    column, other = with_measured(atlas, read_results(tmp_path)).columns
    assert column.models == ("org/model", "xalign/lsar__e5")
    np.testing.assert_array_equal(column.scores[0], column.scores[1])
    assert (other.dataset_revision, other.models) == ("other", ("xalign/lsar__e5",))


@pytest.mark.parametrize(("version", "score"), [("1.1.9", 0.9), ("1.2.3", 0.1), ("1.10.0", 0.1)])
def test_newer_scores_of_a_published_model_replace_its_older_ones(write_result, tmp_path, version, score):
    atlas = published(write_result, tmp_path)
    write_result("org/model", {"deu_Latn-eng_Latn": 0.1}, version=version)
    (column,) = with_measured(atlas, read_results(tmp_path)).columns
    assert column.models == ("org/model",)
    german, french = (column.languages.index(code) for code in ("deu-Latn", "fra-Latn"))
    assert column.scores[0, german, 2] == score
    assert column.scores[0, french, 2] == 0.7  # was not measured again
    assert column.measured == ({"org/model"} if score == 0.1 else frozenset())


def test_results_that_were_read_are_not_read_again(write_result, tmp_path):
    atlas = published(write_result, tmp_path)
    write_result("xalign/lsar__e5", PAIRS)
    results = read_results(tmp_path)
    shutil.rmtree(tmp_path / "results")
    assert with_measured(atlas, results).columns[0].measured == {"xalign/lsar__e5"}
