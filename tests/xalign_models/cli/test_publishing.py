"""Publishing writes nothing unless it is told to, and its card is one that the hub reads."""

from __future__ import annotations

import json
import subprocess
from unittest.mock import Mock

import httpx
import pytest
import yaml


@pytest.fixture
def model(xalign, workdir, tiny_model, write_text, monkeypatch):
    """A fitted model, and its score on a task."""
    monkeypatch.setenv("XALIGN_SCORE_FITTED", "1")  # rows of few random words may be in both texts
    write_text(workdir / "fit", 40, seed=1)
    write_text(workdir / "own", 30)
    command = ("fit", "centered", "--backbone", tiny_model, "--corpus", "own:fit", "-o", "model")
    assert xalign(*command)[0] == 0
    assert xalign("run", "-m", "model", "-t", "OwnParallel", "--data", "own=own")[0] == 0
    return workdir / "model"


def test_a_dry_run_then_a_directory(xalign, model, workdir) -> None:
    status, out, _ = xalign("publish", "model", "--to", "public")
    assert status == 0
    assert "modules.json" in out
    assert "would go to public; add --write to publish." in out
    assert not (workdir / "public").exists()
    assert xalign("publish", "model", "--to", "public", "--write")[:2] == (0, "wrote public\n")
    assert (workdir / "public" / "modules.json").read_bytes() == (model / "modules.json").read_bytes()
    _, front, body = (workdir / "public" / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["library_name"] == "sentence-transformers"
    assert {"mteb", "xalign"} <= set(card["tags"])
    scored = card["model-index"][0]["results"]
    (result,) = (workdir / "results").glob("*/*/OwnParallel.json")
    entries = json.loads(result.read_text())["scores"]["test"]
    assert {(one["dataset"]["config"], one["metrics"][0]["value"]) for one in scored} == {
        (entry["hf_subset"], entry["main_score"]) for entry in entries
    }
    assert "xalign_models.load" in body
    from sentence_transformers import SentenceTransformer

    assert SentenceTransformer(str(workdir / "public"), trust_remote_code=True) is not None


def test_scores_of_an_earlier_fit_are_not_published(xalign, model, tiny_model) -> None:
    fit = ("fit", "centered", "--backbone", tiny_model, "--corpus", "own:fit", "--label", "ours", "-o", "model")
    assert xalign(*fit)[0] == 0
    assert xalign("run", "-m", "model", "-t", "OwnParallel", "--data", "own=own")[0] == 0
    assert "README.md, with 0 scores" not in xalign("publish", "model", "--to", "public")[1]
    assert xalign(*fit, "--limit", "30")[0] == 0  # which has the same name
    assert "README.md, with 0 scores" in xalign("publish", "model", "--to", "public")[1]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nowhere", "--to", "x"), "nowhere is not a saved model"),
        (("model", "--to", "hub"), "--repository org/name"),
    ],
)
def test_wrong_uses_are_one_line(xalign, tiny_model, arguments, part: str) -> None:
    status, _, err = xalign("publish", *(str(tiny_model) if one == "model" else one for one in arguments))
    assert status == 2
    (line,) = err
    assert part in line


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_that_is_away_is_one_line(xalign, model, monkeypatch, offline) -> None:
    """Whether it must not be asked, or cannot be reached."""
    if not offline:
        monkeypatch.setattr("huggingface_hub.HfApi.create_repo", Mock(side_effect=httpx.ConnectError("unknown name")))
    status, _, err = xalign("publish", "model", "--to", "hub", "--repository", "org/name", "--write")
    assert status == 2
    assert "org/name cannot be written on the hub" in err[-1]


def test_a_run_as_json_has_the_scores(xalign, model, workdir) -> None:
    status, out, _ = xalign("run", "-m", "model", "-t", "OwnParallel", "--data", "own=own", "--json")
    (result,) = (workdir / "results").glob("*/*/OwnParallel.json")
    entries = json.loads(result.read_text())["scores"]["test"]
    (outcome,) = json.loads(out)
    assert status == 0
    assert outcome["scores"] == {"test": {entry["hf_subset"]: entry["main_score"] for entry in entries}}


def test_submit_says_what_the_repository_would(xalign, model) -> None:
    status, out, _ = xalign("submit", "--check", "--json")
    from xalign_models.evaluation.publishing import problems

    assert json.loads(out) == problems(model.parent)
    assert status == bool(json.loads(out))
    assert xalign("submit")[0] == 2


@pytest.mark.slow
def test_mtebs_own_commands_know_our_tasks(workdir, python) -> None:
    command = [python, "-m", "xalign_models.cli", "mteb", "available-tasks", "--tasks", "FloresPrecision"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "FloresPrecision" in result.stdout, result.stderr
    bare = subprocess.run(command[:4], capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stdout.split()[:3]) == (0, ["usage:", "xalign", "mteb"]), bare.stderr
