"""Requests name models and load them; studies gather findings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import LanguageError, ModelError
from xalign_models.plugins import ANALYSES
from xalign_tasks.analyses.base import Study, statistics
from xalign_tasks.analyses.base import flores as read_flores


def test_analyses_are_described_and_can_be_imported():
    assert all(ANALYSES.facts(name)["description"].endswith(".") and callable(ANALYSES[name]) for name in ANALYSES)


def test_models_are_named_or_asked_for():
    assert Request(("a", "b")).named() == ("a", "b")
    with pytest.raises(ModelError, match="--model: name at least one"):
        Request().named()


def test_a_model_is_loaded_with_the_store(workdir, tiny_model):
    encoder = Request(device="cpu").load(str(tiny_model))
    assert encoder.raw.store.path == workdir / "store"
    assert encoder.encode_texts(["w1 w2"], [None]).shape == (1, 16)


def test_a_study_joins_the_parts_of_each_table_in_their_order():
    study = Study()
    labelled = study.add("scores", [{"score": 1.0}, {"score": 2.0}], model="a")
    study.add("scores", pd.DataFrame({"score": [3.0]}), model="b")
    study.notes.append("Of a model.")
    found = study.findings("Of all.")
    assert labelled.columns.tolist() == ["model", "score"]
    assert found.tables["scores"].to_dict("list") == {"model": ["a", "a", "b"], "score": [1.0, 2.0, 3.0]}
    assert found.notes == ("Of a model.", "Of all.")


def test_statistics_are_numpys_by_name():
    values = np.random.default_rng(0).standard_normal(50)
    row = statistics(values, ("min", "median", "p95", "count"))
    assert list(row) == ["min", "median", "p95", "count"]
    assert list(row.values()) == [values.min(), np.median(values), np.quantile(values, 0.95), 50]


def test_sentences_start_with_english_and_need_another_language(flores):
    texts, study = read_flores(Request(languages=("deu-Latn", "eng-Latn"), rows=3), ("fra-Latn",), 5)
    assert {code: len(sentences) for code, sentences in texts.items()} == {"eng-Latn": 3, "deu-Latn": 3}
    assert list(texts) == ["eng-Latn", "deu-Latn"]
    assert set(study.data) == {"flores"}
    assert len(read_flores(Request(), ("fra-Latn",), 5)[0]["fra-Latn"]) == 5
    with pytest.raises(LanguageError, match="besides English"):
        read_flores(Request(languages=("eng-Latn",)), ("fra-Latn",), 5)


def test_two_directories_of_one_name_are_refused(tmp_path):
    """They would be one model of a table."""
    one, other = (tmp_path / part / "stage1" for part in "ab")
    for folder in (one, other):
        folder.mkdir(parents=True)
    assert Request((str(one), "name")).titled() == {"stage1": str(one), "name": "name"}
    with pytest.raises(ModelError, match=f"^{one} and {other} have the same name in the tables, stage1"):
        Request((str(one), str(other))).titled()
