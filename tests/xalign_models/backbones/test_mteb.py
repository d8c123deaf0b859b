"""Models of mteb's registry as backbones: mteb's own scores, and a reason where there can be none."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

import xalign_models
from xalign_models import assets
from xalign_models.backbones import policy
from xalign_models.backbones.mteb import BEHIND_AN_API, OWN_CODE, registry
from xalign_models.backbones.sources import find_source
from xalign_models.errors import ModelError
from xalign_models.evaluation.run import run
from xalign_models.models.names import find_spec, locate
from xalign_models.store import open_store

DATA = os.environ.get("XALIGN_DATA")
MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "intfloat/multilingual-e5-small")
TASKS = ("MockSTSTask", "MockRetrievalTask", "MockClassificationTask", "MockBitextMiningTask")


@pytest.fixture
def mirror(workdir, monkeypatch):
    """Puts a model's directory where the hub's repository of that name is looked for."""
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    (workdir / "mirror").mkdir()
    find_source.cache_clear()

    def put(name, directory):
        shutil.copytree(directory, workdir / "mirror" / name)
        return workdir / "mirror" / name

    yield put
    find_source.cache_clear()


def main_scores(result):
    return {(split, entry["hf_subset"]): entry["main_score"] for split, all_ in result.scores.items() for entry in all_}


def mock_tasks():
    import mteb.mocks.mock_tasks as mocks

    return [getattr(mocks, name)() for name in TASKS]


def compare(name, directory):
    """The scores of ``mteb:name`` and those of mteb itself, task by task."""
    import mteb

    meta = mteb.get_model_meta(name)
    own = meta.model_copy(update={"name": str(directory), "revision": None}).load_model(device="cpu")
    outcomes = list(run([f"mteb:{name}"], mock_tasks(), Path("out"), device="cpu", store=open_store()))
    assert [outcome.error for outcome in outcomes] == [""] * len(TASKS)
    for outcome, task in zip(outcomes, mock_tasks(), strict=True):
        theirs = mteb.evaluate(own, task, cache=None, show_progress_bar=False).task_results[0]
        assert main_scores(outcome.result) == pytest.approx(main_scores(theirs), abs=1e-6), outcome.task
    return outcomes


@pytest.mark.slow
def test_plain_is_mtebs_own_score_and_prompts_are_its_own(mirror, tiny_model):
    """Queries and documents of e5 have prompts in mteb, bitext has none; classification sees vectors as they are."""
    for name in MODELS:
        compare(name, mirror(name, tiny_model))


@pytest.mark.slow
def test_two_models_score_as_mteb_scores_them(mirror, take_assets):
    packages = ("all-minilm-l6-v2", "multilingual-e5-small-q4")
    take_assets(*packages)
    for name, package in zip(MODELS, packages, strict=True):
        compare(name, mirror(name, assets.where(package)))


@pytest.mark.slow
@pytest.mark.realdata
def test_a_real_task_is_scored_as_by_the_registered_model(mirror, take_assets, monkeypatch):
    if not DATA or not (Path(DATA) / "sts17").is_dir():
        pytest.skip("XALIGN_DATA has no sts17")
    take_assets("all-minilm-l6-v2")
    mirror(MODELS[0], assets.where("all-minilm-l6-v2"))
    monkeypatch.setenv("XALIGN_DATA", DATA)
    models, languages = [f"mteb:{MODELS[0]}", "all-MiniLM-L6-v2"], ["en", "es"]
    one, two = run(models, ["STS17CrossLingual"], Path("out"), languages=languages, device="cpu", store=open_store())
    assert (one.error, two.error) == ("", "")
    assert len(main_scores(one.result)) == 3
    assert main_scores(one.result) == pytest.approx(main_scores(two.result), abs=1e-6)


def test_alignments_go_on_top(mirror, tiny_model, workdir, write_text, monkeypatch):
    mirror(MODELS[0], tiny_model)
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 20)))
    text = write_text(workdir / "fit", 40)
    model = xalign_models.fit("centered", backbone=f"mteb:{MODELS[0]}", corpus=f"own:{text}", device="cpu")
    same = xalign_models.fit("centered", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    xalign_models.save(model, "aligned")
    xalign_models.save(same, "same")
    one, two = run(["aligned", "same"], ["OwnParallel"], Path("out"), device="cpu", store=open_store())
    assert (one.error, two.error) == ("", "")
    assert one.model.startswith(f"xalign/centered__mteb-{MODELS[0].replace('/', '-')}__")
    assert len(main_scores(one.result)) == 6


def test_what_identifies_it(mirror, tiny_model, make_model, workdir):
    directory = mirror(MODELS[0], tiny_model)
    first = locate(f"mteb:{MODELS[0]}").namespace
    find_source.cache_clear()
    assert locate(f"mteb:{MODELS[0]}").namespace == first
    shutil.rmtree(directory)
    mirror(MODELS[0], make_model(workdir / "other", intermediate_size=48))
    find_source.cache_clear()
    assert locate(f"mteb:{MODELS[0]}").namespace != first


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sentence-transformers/all-MiniLM-L6-v3", "no such model. Did you mean"),
        ("BAAI/bge-reranker-v2-m3", "cross-encoder"),
        ("colbert-ir/colbertv2.0", "many vectors"),
        ("facebook/dinov2-small", "reads no text, only image"),
    ],
)
def test_what_gives_no_vectors_of_texts_says_why(workdir, name, said):
    with pytest.raises(ModelError, match=f"mteb:{name}: .*{said}"):
        _ = locate(f"mteb:{name}").namespace


@pytest.mark.parametrize("name", ["mteb:", "mteb:e5", "mteb:a b/c"])
def test_a_name_of_no_model_is_refused(name):
    with pytest.raises(ModelError, match="write mteb:org/name"):
        find_spec(name)


def test_code_of_a_model_is_not_run(mirror, tiny_model, monkeypatch):
    import mteb

    directory = mirror(MODELS[0], tiny_model)
    (directory / "modeling.py").write_text("raise SystemExit")
    source = find_source(f"mteb:{MODELS[0]}")
    spec = find_spec(f"mteb:{MODELS[0]}").backbone
    with pytest.raises(ModelError, match="has its own code"):
        source.modules(spec, "cpu")
    monkeypatch.setitem(mteb.get_model_meta(MODELS[0]).loader_kwargs, "trust_remote_code", True)
    monkeypatch.setattr(policy, "check", lambda *_, **__: None)
    find_source.cache_clear()
    with pytest.raises(ModelError, match="--trust-remote-code"):
        find_source(f"mteb:{MODELS[0]}").modules(spec, "cpu")


@pytest.mark.slow
def test_every_model_of_the_registry_is_a_backbone_or_says_why(monkeypatch):
    """Nothing is opened: no network, no weights."""
    monkeypatch.setenv("MTEB_AUTO_INSTALL_EXTRAS", "0")
    known = registry()
    assert all(find_source(f"mteb:{name}").mteb_name == name for name in known)
    counts = Counter(re.sub("(its wrapper needs|it reads no text).*", r"\1", reason) for reason in known.values())
    assert counts.keys() == {
        "",
        BEHIND_AN_API,
        OWN_CODE,
        "its wrapper needs",
        "it reads no text",
        "a cross-encoder scores pairs of texts and gives no vectors",
        "late interaction gives many vectors per text, but an alignment maps one",
        "its vectors are sparse, but an alignment maps dense ones",
        "its vectors are hybrid, but an alignment maps dense ones",
        "mteb has no way to load it",
    }
    assert len(known) > 900
    assert counts[""] > 300
    assert known["intfloat/multilingual-e5-large"] == ""
