"""The committed results: mteb loads them, the public results repository would take them, and they are small."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import mteb
import numpy as np
import pytest
from mteb.models.model_meta import ModelMeta
from mteb.results import TaskResult
from mteb.results.task_result import _expand_run_settings_entry
from packaging.version import Version

from xalign_models.assets import where
from xalign_models.boards.baseline import read_baseline, read_before
from xalign_models.boards.gate import compare, read_new
from xalign_models.boards.means import means_csv
from xalign_models.models.catalogue import specs
from xalign_models.models.recipe import Recipe
from xalign_models.results.items import TOLERANCE, read_outcomes
from xalign_models.results.reading import read_results

RESULTS = Path(__file__).parents[1] / "results"
REVISIONS = sorted(path for path in RESULTS.glob("*/*") if path.is_dir())
SCORES = sorted(path for folder in REVISIONS for path in folder.glob("*.json") if path.name != "model_meta.json")


def load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_mteb_loads_them_all():
    loaded = mteb.ResultCache(RESULTS.parent).load_results()
    found = {(one.model_name, one.model_revision, task.task_name) for one in loaded for task in one.task_results}
    assert len(found) == len(SCORES) > 400
    assert found == {(load(path.with_name("model_meta.json"))["name"], path.parts[-2], path.stem) for path in SCORES}


def test_the_top_level_has_models_and_three_files():
    files = {path.name for path in RESULTS.iterdir() if path.is_file()}
    assert files == {"baseline.json", "leaderboard.csv"}
    assert all("__" in path.name for path in RESULTS.iterdir() if path.is_dir())


def test_the_baseline_has_the_results_and_no_others():
    """Otherwise `xalign gate` on a clean clone cannot tell."""
    tables = read_results(RESULTS.parent).tables
    assert {
        (model, task) for model, tasks in read_baseline(RESULTS / "baseline.json").scores.items() for task in tasks
    } == {*tables}
    report = compare(read_new(RESULTS.parent), read_before(RESULTS / "baseline.json"))
    assert report.exit_code == 0, report.summary()


def test_names_and_revisions_are_as_the_public_repository_asks():
    """An organisation in the name, a revision of 40 hexadecimal digits, and folders that say the same."""
    assert REVISIONS
    for folder in REVISIONS:
        meta = load(folder / "model_meta.json")
        assert meta["name"].replace("/", "__") == folder.parent.name
        assert meta["name"].count("/") == 1
        assert meta["revision"] == folder.name
        assert re.fullmatch("[0-9a-f]{40}", folder.name)
        ModelMeta.model_validate_json_resolved((folder / "model_meta.json").read_text(encoding="utf-8"))
    assert all(path.is_dir() for model in RESULTS.iterdir() if model.is_dir() for path in model.iterdir())


def test_a_revision_has_scores_metadata_settings_and_items_alone():
    for folder in REVISIONS:
        tasks = {path.stem for path in folder.glob("*.json")} - {"model_meta"}
        assert {path.name for path in folder.iterdir()} - {"items"} == {
            "model_meta.json",
            "run_settings.jsonl",
            *(f"{task}.json" for task in tasks),
        }
        assert {path.stem for path in folder.glob("items/*")} <= tasks
        assert all(path.suffix == ".npz" for path in folder.glob("items/*"))


def test_no_model_has_a_task_twice():
    keys = [(path.parts[-3], path.stem) for path in SCORES]
    assert len(set(keys)) == len(keys)


def test_every_score_has_its_settings_and_a_current_version_of_mteb():
    for folder in REVISIONS:
        lines = (folder / "run_settings.jsonl").read_text(encoding="utf-8").splitlines()
        entries = list(map(json.loads, lines))
        assert all(entry["hardware"] and entry["version"]["xalign"] for entry in entries)
        covered = {scope for entry in entries for scope, *_ in _expand_run_settings_entry(entry)}
        for path in (path for path in SCORES if path.parent == folder):
            result = TaskResult.from_disk(path)
            assert result.task_name == path.stem
            assert Version(result.mteb_version) >= Version("2")
            assert {
                (path.stem, split, entry["hf_subset"]) for split, entries in result.scores.items() for entry in entries
            } <= covered


def test_outcomes_give_the_scores(caplog):
    results = read_results(RESULTS)
    assert not results.unreadable
    tested = 0
    for table in results.tables.values():
        path = table.folder / "items" / f"{table.task}.npz"
        if path.is_file():
            outcomes, values = read_outcomes(path), table.values()
            assert outcomes.keys() == values.keys()
            assert all(abs(np.mean(outcomes[subset]) - values[subset]) < TOLERANCE for subset in values)
            tested += 1
    assert tested == len(list(RESULTS.glob("*/*/items/*.npz"))) > 200
    assert not caplog.records


def test_they_are_small():
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 20e6


def test_the_leaderboard_in_the_folder_is_current():
    """``xalign leaderboard --means > results/leaderboard.csv`` makes it."""
    assert (RESULTS / "leaderboard.csv").read_text(encoding="utf-8") == means_csv(read_results(RESULTS))


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.skipif("XALIGN_DATA" not in os.environ, reason="XALIGN_DATA is not set: a revision has its fit text in it")
def test_revisions_are_those_of_the_models_at_hand(monkeypatch):
    """Current revisions equal those of the results, on a like processor, so that no run scores a model again."""
    monkeypatch.setattr(
        "xalign_models.linalg.onednn.is_slow", lambda *_: False
    )  # else bfloat16 is computed with in float32
    compared = 0
    for name, spec in specs().items():
        folders = list((RESULTS / name.replace("/", "__")).glob("*"))
        if folders and not spec.backbone.tuned and where(spec.backbone.model) is not None:
            compared += 1
            assert [folder.name for folder in folders] == [Recipe(spec).revision], name
    if not compared:
        pytest.skip("no asset is installed: xalign assets install multilingual-e5-small-q4")
