"""The public repository's rules: a folder that keeps them all has no problem, and each broken rule is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from xalign_models.errors import ResultsError
from xalign_models.evaluation.publishing import problems

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def good(tmp_path) -> Path:
    folder = tmp_path / "results" / "BAAI__bge-m3" / REVISION
    folder.mkdir(parents=True)
    (folder / "model_meta.json").write_text(json.dumps({"name": "BAAI/bge-m3", "revision": REVISION}))
    entry = {"main_score": 0.5, "hf_subset": "default", "languages": ["eng-Latn"]}
    result = {
        "task_name": "STS12",
        "dataset_revision": "d",
        "mteb_version": "2.26.0",
        "evaluation_time": 1.0,
        "scores": {"test": [entry]},
    }
    (folder / "STS12.json").write_text(json.dumps(result))
    (folder / "run_settings.jsonl").write_text(
        json.dumps({"task": "STS12", "splits": ["test"], "subsets": ["default"]}) + "\n"
    )
    return folder


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_what_keeps_the_rules_passes(good, tmp_path) -> None:
    assert problems(tmp_path) == problems(tmp_path / "results") == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "model_meta.json").unlink(), "model_meta.json is missing"),
        (lambda folder: (folder / "model_meta.json").write_text("["), "not a model's metadata"),
        (lambda folder: change(folder / "model_meta.json", name="name"), "no organisation"),
        (lambda folder: change(folder / "model_meta.json", name="org/other"), "differs from the folder's"),
        (lambda folder: change(folder / "model_meta.json", revision="1"), "differs from the folder's"),
        (lambda folder: change(folder / "STS12.json", mteb_version="1.12.3"), "1.12.3; 2 or newer"),
        (lambda folder: change(folder / "STS12.json", task_name="STS13"), "a result of the task 'STS13'"),
        (lambda folder: (folder / "STS12.json").write_text("{"), "not a result that mteb can read"),
        (lambda folder: (folder / "run_settings.jsonl").unlink(), "missing or damaged"),
        (
            lambda folder: (folder / "run_settings.jsonl").write_text(""),
            "does not cover 1 of its scores, such as test/",
        ),
        (lambda folder: (folder.parent / "README.md").write_text(""), "is a file; only folders"),
        (lambda folder: shutil.copytree(folder, folder.parent / ("f" * 40)), "STS12 has results under 2 revisions"),
        (lambda folder: folder.rename(folder.parent / "0123456789abcdef"), "the revision has 16 characters"),
    ],
)
def test_each_broken_rule_is_named(good, tmp_path, damage, reason: str) -> None:
    damage(good)
    if reason.startswith("the revision has"):
        change(good.parent / "0123456789abcdef" / "model_meta.json", revision="0123456789abcdef")
    found = problems(tmp_path)
    assert found
    assert any(reason in line for line in found), found
    assert all(line.startswith("BAAI__bge-m3") for line in found)


def test_models_and_tasks_that_mteb_lacks_are_named(good, tmp_path) -> None:
    for name in ("Tatoeba36", "FloresPrecision"):
        change(good / "STS12.json", task_name=name)
        shutil.copy(good / "STS12.json", good / f"{name}.json")
    (good / "STS12.json").unlink()
    shutil.copytree(good.parent, good.parents[1] / "xalign__lsar__e5")
    found = problems(tmp_path)
    assert "models that are not in mteb: 1, such as xalign/lsar__e5; add them to mteb first, in a pull request" in found
    assert "tasks that are not in mteb: 2, such as FloresPrecision; add them to mteb first, in a pull request" in found


def test_nothing_to_check_is_an_error(tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ResultsError, match="No results"):
            problems(folder)
