"""A result that is run again has the same scores; one that was changed is found."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xalign_models.errors import ResultsError
from xalign_models.evaluation import run as running
from xalign_models.evaluation.reproduction import reproduce
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore
from xalign_tasks import register_with_mteb


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


def test_a_sample_of_the_stores_vectors_is_made_again(result, workdir, monkeypatch):
    monkeypatch.setattr("xalign_models.evaluation.reproduction.SAMPLE", 3)
    with EmbeddingStore(workdir / "other", max_bytes=2**24) as store:
        lines = []
        first = reproduce(result, device="cpu", store=store, tell=lines.append)
        assert first.stored == first.compared == 0
        again = reproduce(result, device="cpu", store=store, tell=lines.append)
        assert again.encoded == again.compared > 0
        assert again.stored + again.compared == first.encoded
        assert again.notes == () and again.differing(1e-6) == []
        assert len(lines) == 2
        (namespace,) = (stats.namespace for stats in store.stats())
        with store._env.begin(db=store._database(namespace, create=False)) as transaction:
            keys = [bytes(key) for key, _ in transaction.cursor()]
        store.put(namespace, keys, np.random.default_rng(0).standard_normal((len(keys), 16), dtype=np.float32))
        poisoned = reproduce(result, device="cpu", store=store)
        assert f"{again.compared} of {again.compared} vectors differ from the store" in poisoned.notes[0]


def test_what_is_fitted_is_told_and_can_be_made_anew(workdir, tiny_model, write_text, monkeypatch):
    register_with_mteb()
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30)))
    monkeypatch.setenv("XALIGN_SCORE_FITTED", "1")
    spec = ModelSpec(find_spec(str(tiny_model)).backbone, AlignmentSpec("centered", "centered", (), ("own",)))
    with EmbeddingStore(workdir / "other", max_bytes=2**24) as store:
        encoder = load_encoder(spec, device="cpu", store=store)
        (outcome,) = running.run([encoder], ["OwnParallel"], workdir, languages=None)
        assert outcome.result is not None, outcome.error
        path = next((workdir / "results").rglob("OwnParallel.json"))
        meta = json.loads(path.with_name("model_meta.json").read_text())
        meta["loader_kwargs"]["spec"]["backbone"]["model"] = str(tiny_model)
        path.with_name("model_meta.json").write_text(json.dumps(meta))
        lines = []
        assert reproduce(path, device="cpu", store=store, tell=lines.append).differing(1e-6) == []
        fits = list((workdir / "cache" / "alignments").glob("[!.]*/alignment.json"))
        assert fits
        for fit in fits:  # not looked at
            fit.write_text("{}")
        found = reproduce(path, device="cpu", tell=lines.append)
        assert found.differing(1e-6) == [] and found.stored == 0 and found.encoded > 0
    assert [line.partition(";")[0] for line in lines] == [
        "The fit has 90 texts, of which the store has 90",
        "The fit has 90 texts, of which the store has 0",
    ]


def test_other_text_is_noted(result, workdir, write_text):
    write_text(workdir / "own", 30, seed=9)
    assert "the text has revision" in reproduce(result, device="cpu").notes[0]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"scores": {"test": [1]}, "task_name": "x"}', '{"scores": {}}'])
def test_what_is_no_result_is_refused(tmp_path, content):
    (tmp_path / "Task.json").write_text(content)
    with pytest.raises(ResultsError, match=r"Task.json cannot be run again: .*\w"):
        reproduce(tmp_path / "Task.json")
