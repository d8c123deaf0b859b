"""Damage of every kind is found, and what can be made again is dropped; a kill's leftovers go."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from xalign_models import assets
from xalign_models.backbones.raw import key
from xalign_models.evaluation import verification
from xalign_models.models.api import fit
from xalign_models.models.saving import save
from xalign_models.store import open_store


@pytest.fixture
def kept(workdir, tiny_model, write_text):
    """A store, a fit, a saved model and a result, all whole."""
    store = open_store()
    store.put("one", [key("", str(i)) for i in range(5)], np.eye(5, 16, dtype=np.float32))
    write_text(workdir / "text", 30)
    save(fit("centered", backbone=str(tiny_model), corpus=f"own:{workdir / 'text'}"), workdir / "saved")
    folder = workdir / "results" / "org__model" / "1"
    (folder / "items").mkdir(parents=True)
    entry = {"hf_subset": "default", "main_score": 0.5}
    (folder / "Task.json").write_text(json.dumps({"task_name": "Task", "scores": {"test": [entry]}}))
    (folder / "model_meta.json").write_text(json.dumps({"name": "org/model"}))
    (folder / "run_settings.jsonl").write_text('{"task": "Task"}\n')
    np.savez(folder / "items" / "Task.npz", hits=np.ones(4, dtype=np.uint8))
    return workdir


def check(kept, clean=False):
    checks = verification.verify(kept, [kept / "saved"], clean=clean)
    return {one.kind: one for one in checks}


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def old(path):
    os.utime(path, (0, 0))


def damage_store(kept):
    database = open_store()._env.open_db(b"2:one")
    with open_store()._env.begin(write=True, db=database) as transaction:
        transaction.put(key("", "3"), b"damaged value")


def leave(kept):
    for folder in (kept / "cache" / "assets" / ".toy.x1.part", kept / "results" / "org__model" / "1" / ".staged-x"):
        (folder / "new").mkdir(parents=True)
        (folder / "new" / "file").write_text("half")
        for path in (folder / "new" / "file", folder / "new", folder):
            old(path)


def fits(kept):
    return next((kept / "cache" / "alignments").glob("[!.]*/"))


RESULT = "results/org__model/1"
DAMAGE = {
    "vector": ("store", damage_store, "damaged vectors of one: 1 of 5"),
    "fit": ("fits", lambda kept: cut(fits(kept) / "alignment.safetensors"), "is damaged; fit"),
    "weights": ("models", lambda kept: cut(kept / "saved" / "model.safetensors"), "model.safetensors is cut off"),
    "files of a model": (
        "models",
        lambda kept: (kept / "saved" / "vocab.txt").write_text("other"),
        "xalign.json does not match the model's files",
    ),
    "code in a model": ("models", lambda kept: (kept / "saved" / "evil.py").write_text(""), "has its own code"),
    "result": ("results", lambda kept: cut(kept / RESULT / "Task.json"), "Task.json is damaged"),
    "scores": (
        "results",
        lambda kept: (kept / RESULT / "Task.json").write_text(
            '{"scores": {"test": [{"hf_subset": "default", "main_score": NaN}]}}'
        ),
        "Task.json is damaged: impossible score of default: nan is not finite",
    ),
    "outcomes": ("results", lambda kept: cut(kept / RESULT / "items" / "Task.npz"), "Task.npz is damaged"),
    "settings": ("results", lambda kept: cut(kept / RESULT / "run_settings.jsonl"), "1 damaged lines"),
    "metadata": ("results", lambda kept: cut(kept / RESULT / "model_meta.json"), "model_meta.json is damaged"),
    "no metadata": ("results", lambda kept: (kept / RESULT / "model_meta.json").unlink(), "but no model_meta.json"),
    "leftovers": ("leftovers", leave, "left behind by a killed process"),
}


def test_what_is_whole_is_whole(kept):
    checks = check(kept)
    assert {kind: one.problems for kind, one in checks.items()} == {kind: [] for kind in checks}
    assert checks["store"].checked >= 5
    assert {kind: one.checked for kind, one in checks.items() if kind in {"models", "fits", "results"}} == {
        "models": 1,
        "fits": 1,
        "results": 4,
    }


@pytest.mark.parametrize(("kind", "damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named(kept, kind, damage, message):
    damage(kept)
    checks = check(kept)
    assert message in " ".join(checks[kind].problems)
    assert [other for other, one in checks.items() if one.problems] == [kind]


def test_cleaning_mends_what_can_be_made_again_and_loses_nothing_else(kept):
    for kind in ("vector", "fit", "result", "leftovers"):
        DAMAGE[kind][1](kept)
    checks = check(kept, clean=True)
    assert {kind: len(one.mended) for kind, one in checks.items() if one.mended} == {
        "store": 1,
        "fits": 1,
        "results": 1,
        "leftovers": 2,
    }
    assert not any(one.problems for one in checks.values())
    after = check(kept)
    assert not any(one.problems or one.mended for one in after.values())
    assert [vector is None for vector in open_store().get("one", [key("", str(i)) for i in range(5)])] == [
        False,
        False,
        False,
        True,
        False,
    ]
    assert (kept / RESULT / "Task.json.damaged").is_file()
    assert not list(kept.rglob(".staged-*"))


def test_a_result_that_cannot_be_set_aside_is_still_a_problem(kept):
    DAMAGE["result"][1](kept)
    (kept / RESULT / "Task.json.damaged").mkdir()
    results = check(kept, clean=True)["results"]
    assert not results.mended
    (problem,) = results.problems
    assert "Task.json is damaged" in problem
    assert "the file cannot be renamed" in problem


def test_a_damaged_asset_is_named(kept, monkeypatch):
    installed = kept / "cache" / "assets" / "gettext"
    installed.mkdir(parents=True)
    (installed / "MANIFEST.json").write_text(json.dumps({"files": {"corpus.jsonl": "0" * 64}}))
    (installed / "corpus.jsonl").write_text("{}")
    assert "gettext in" in check(kept)["assets"].problems[0]
    assert assets.where("gettext") is not None


@pytest.mark.parametrize("scores", [{"test": 5}, {"test": [5]}, {"test": [{"main_score": 10**400}]}, [1]])
def test_scores_of_any_form_are_named(kept, scores):
    (kept / RESULT / "Task.json").write_text(json.dumps({"scores": scores}))
    assert "Task.json is damaged: it does not have the form" in check(kept)["results"].problems[0]


def test_cleaning_stays_within_the_results(kept, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "settings.json").write_text("mine")
    (kept / "results" / "org__model" / "linked").symlink_to(outside)
    assert "a link out" in check(kept, clean=True)["results"].problems[0]
    assert [path.name for path in outside.iterdir()] == ["settings.json"]


def test_leftovers_beside_a_named_model_go(kept):
    leftover = kept / ".saved.x1.part"
    leftover.mkdir()
    os.utime(leftover, (0, 0))
    (mended,) = check(kept, clean=True)["leftovers"].mended
    assert str(leftover) in mended
    assert not leftover.exists()


@pytest.mark.parametrize("kind", ["assets", "models", "alignments"])
def test_what_is_young_is_nobodys_leftover_and_not_damaged(kept, kind):
    new = kept / "cache" / kind / ".toy.x1.part" / "new"
    new.mkdir(parents=True)
    (new / "model.safetensors").write_bytes(b"half")
    checks = check(kept, clean=True)
    assert checks["leftovers"].checked == 0
    assert not any(one.problems for one in checks.values())


def test_what_needs_a_plug_in_is_not_damaged_and_stays(kept):
    header = fits(kept) / "alignment.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "method": "of_a_plug_in"}))
    checks = check(kept, clean=True)
    assert not checks["fits"].problems
    assert not checks["fits"].mended
    assert "of_a_plug_in" in checks["fits"].unchecked[0]
    assert header.is_file()
