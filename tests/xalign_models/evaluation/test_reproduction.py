"""A result that is run again has the same scores; one that was changed is found."""

from __future__ import annotations

import json

import pytest

from tasks import register_with_mteb
from xalign_models.errors import ResultsError
from xalign_models.evaluation import run as running
from xalign_models.evaluation.reproduction import reproduce


@pytest.fixture
def result(workdir, tiny_model, write_text, monkeypatch):
    register_with_mteb()
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30)))
    (outcome,) = running.run([str(tiny_model)], ["OwnParallel"], workdir, languages=None)
    assert outcome.result is not None
    meta = next((workdir / "results").rglob("model_meta.json"))
    content = json.loads(meta.read_text())
    content["loader_kwargs"]["spec"]["backbone"]["model"] = str(tiny_model)  # the card keeps the folder's name alone
    meta.write_text(json.dumps(content))
    return meta.with_name("OwnParallel.json")


def test_the_same_model_on_the_same_text_has_the_same_scores(result):
    found = reproduce(result, device="cpu")
    assert len(found.rows) == 6
    assert found.differing(1e-6) == []  # files keep six decimals
    assert found.notes == ()


def test_a_changed_score_is_found(result):
    content = json.loads(result.read_text())
    content["scores"]["test"][2]["main_score"] += 0.01
    subset = content["scores"]["test"][2]["hf_subset"]
    result.write_text(json.dumps(content))
    assert [row.subset for row in reproduce(result, device="cpu").differing()] == [subset]


def test_other_text_is_noted(result, workdir, write_text):
    write_text(workdir / "own", 30, seed=9)
    assert "the text is of revision" in reproduce(result, device="cpu").notes[0]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"scores": {"test": [1]}, "task_name": "x"}', '{"scores": {}}'])
def test_what_is_no_result_is_refused(tmp_path, content):
    (tmp_path / "Task.json").write_text(content)
    with pytest.raises(ResultsError, match="is no result"):
        reproduce(tmp_path / "Task.json")
