"""The condensed table: planted scores come back as means by language, and what is not whole is missing."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.atlas.derive import columns_of, derive
from xalign_models.atlas.imported import Imported, read_public
from xalign_models.atlas.table import KINDS, load_atlas, save
from xalign_models.errors import ResultsError
from xalign_models.results.languages import language_code

NTREX, MLQA, STS = "NTREXBitextMining", "MLQARetrieval", "STS17"
TYPES = {NTREX: "bitext", MLQA: "retrieval", STS: "sts"}
GRID = {  # queries first
    "deu_Latn-eng_Latn": 0.9, "eng_Latn-deu_Latn": 0.8, "fra_Latn-eng_Latn": 0.7, "eng_Latn-fra_Latn": 0.6,
    "spa_Latn-eng_Latn": 0.5, "eng_Latn-spa_Latn": 0.4, "deu_Latn-fra_Latn": 0.3, "deu_Latn-spa_Latn": 0.1,
    "fra_Latn-deu_Latn": 0.2, "spa_Latn-deu_Latn": 0.6,
}  # fmt: skip


def cell(column, model, language, kind):
    return column.scores[column.row[model], column.languages.index(language), KINDS.index(kind)]


def test_bitext_counts_queries_as_from_and_candidates_as_into(write_result, tmp_path):
    write_result("org/model", GRID)
    (column,) = columns_of(read_public(tmp_path).results, TYPES)
    assert cell(column, "org/model", "deu-Latn", "english_from") == 0.9
    assert cell(column, "org/model", "deu-Latn", "english_into") == 0.8
    assert cell(column, "org/model", "deu-Latn", "other_from") == pytest.approx((0.3 + 0.1) / 2)
    assert cell(column, "org/model", "deu-Latn", "other_into") == pytest.approx((0.2 + 0.6) / 2)
    assert cell(column, "org/model", "eng-Latn", "other_into") == pytest.approx((0.9 + 0.7 + 0.5) / 3)
    assert np.isnan(cell(column, "org/model", "eng-Latn", "english_into"))
    german = column.mean("english_into", "other_into")[0, column.languages.index("deu-Latn")]
    assert german == pytest.approx((0.8 + 0.2 + 0.6) / 3)  # every subset into German counts alike


def test_retrieval_names_the_candidates_language_first(write_result, tmp_path):
    write_result("org/model", {"deu-eng": 0.9, "deu-deu": 0.8}, task=MLQA, metric="ndcg_at_10")
    (column,) = columns_of(read_public(tmp_path).results, TYPES)
    assert cell(column, "org/model", "deu-Latn", "english_into") == 0.9
    assert np.isnan(cell(column, "org/model", "deu-Latn", "english_from"))
    assert cell(column, "org/model", "deu-Latn", "same") == 0.8


def test_a_similarity_has_no_direction(write_result, tmp_path):
    write_result("org/model", {"deu-eng": 0.9}, task=STS, metric="cosine_spearman")
    (column,) = columns_of(read_public(tmp_path).results, TYPES)
    assert cell(column, "org/model", "deu-Latn", "english_into") == 0.9
    assert cell(column, "org/model", "deu-Latn", "english_from") == 0.9


def test_a_mean_needs_all_its_subsets(write_result, tmp_path):
    write_result("org/whole", GRID)
    write_result("org/part", {key: value for key, value in GRID.items() if key != "deu_Latn-fra_Latn"})
    (column,) = columns_of(read_public(tmp_path).results, TYPES)
    assert np.isnan(cell(column, "org/part", "deu-Latn", "other_from"))
    assert np.isnan(column.mean("english_from", "other_from")[column.row["org/part"]]).sum() == 1  # German's alone
    assert cell(column, "org/part", "deu-Latn", "english_from") == 0.9


def test_two_scripts_of_a_language_are_no_pair(write_result, tmp_path):
    write_result("org/model", {"arb_Arab-arb_Latn": 0.9, "arb_Arab-eng_Latn": 0.5}, task=MLQA, metric="ndcg_at_10")
    (column,) = columns_of(read_public(tmp_path).results, TYPES)
    assert column.counts.sum() == 2  # Arabic with English, seen from both


def test_other_texts_are_other_columns(write_result, tmp_path):
    for model, text in (("org/a", "old"), ("org/b", "old"), ("org/c", "new")):
        write_result(model, GRID, text=text)
    columns = columns_of(read_public(tmp_path).results, TYPES)
    assert [(column.dataset_revision, column.models) for column in columns] == [
        ("old", ("org/a", "org/b")),
        ("new", ("org/c",)),
    ]


def test_a_saved_table_reads_as_it_was(write_result, tmp_path):
    for number in range(10):
        write_result(f"org/m{number}", {key: value - number / 100 for key, value in GRID.items()})
    metadata = [
        {"name": "org/m0", "n_parameters": 1e8, "embed_dim": 384, "license": "mit", "training_datasets": [NTREX, "x"]},
        {"name": "org/m0", "n_parameters": None, "release_date": "2024-01-01"},
        {"name": "org/m1", "languages": ["deu-Latn", "python-Code", "eng-Latn", *"fr es it pt nl sv da ru".split()]},
    ]
    atlas = derive(Imported(read_public(tmp_path).results, ()), metadata, TYPES, {"commit": "c"})
    save(atlas, tmp_path / "table.npz")
    again = load_atlas(tmp_path / "table.npz")
    assert again.models == atlas.models
    model = again.models["org/m0"]
    assert (model.parameters, model.dimension, model.release_date) == (100_000_000, 384, "2024-01-01")
    assert (model.trained_on, again.models["org/m2"].trained_on) == ((NTREX,), None)
    assert again.multilingual == 1
    assert not again.low_resource("deu-Latn")
    assert again.low_resource("yor-Latn")
    np.testing.assert_allclose(again.columns[0].scores, atlas.columns[0].scores, atol=5e-5)
    assert again.columns[0].models == tuple(f"org/m{number}" for number in range(10))


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "table.npz").write_text("nothing")
    with pytest.raises(ResultsError, match="xalign atlas update"):
        load_atlas(tmp_path / "table.npz")


def test_codes_of_the_public_results_are_mended():
    assert language_code("cmo-Hans") == "zho-Hans"  # MASSIVE's Mandarin
    assert language_code("kor-Kore") == "kor-Hang"
    assert language_code("ara-Arab") == "arb-Arab"
    assert language_code("qqx-Latn") == "qqx-Latn"
    assert language_code("nonsense") is None
