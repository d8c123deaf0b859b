"""The composite action and the workflow of docs/ci.md: their shell steps, run in a clean folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / ".github/actions/gate/action.yml").read_text())
WORKFLOW = yaml.safe_load(re.search(r"```yaml\n(.*?)```", (ROOT / "docs/ci.md").read_text(), re.DOTALL)[1])


def filled(text: str, inputs: dict[str, str]) -> str:
    """``${{ inputs.x }}`` with its value; nothing else is used."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], text)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a step's script as GitHub does; returns the exit status, the outputs and what was printed."""

    def run(script: str, env: dict[str, str]) -> tuple[int, str, str]:
        (tmp_path / "outputs").write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            env={**os.environ, "GITHUB_OUTPUT": str(tmp_path / "outputs"), "GITHUB_ACTIONS": "true",
                 "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), **env},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, (tmp_path / "outputs").read_text(), done.stdout + done.stderr

    return run


@pytest.fixture
def gate(shell):
    """Runs the action with inputs."""

    def run(env: dict[str, str] | None = None, **given: str) -> tuple[int, str, str]:
        inputs = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        assert inputs.keys() == ACTION["inputs"].keys()
        (step,) = ACTION["runs"]["steps"]
        assert "${{" not in step["run"]  # inputs reach the shell as values only
        values = {name: filled(value, inputs) for name, value in step["env"].items()}
        return shell(step["run"], {**values, **(env or {})})

    return run


def put(root: Path, score: float, n: int = 0) -> None:
    folder = root / "results" / "me__model" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{"hf_subset": "de", "languages": ["deu-Latn"], "main_score": score}]
    (folder / "T.json").write_text(json.dumps({"dataset_revision": "1", "scores": {"test": entries}}))


@pytest.fixture(scope="session")
def command(tmp_path_factory) -> dict[str, str]:
    """A PATH on which ``xalign`` is this tree's."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "xalign"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xalign_models.cli "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_the_actions_statuses(gate, command, tmp_path) -> None:
    put(tmp_path / "old", 0.5)
    put(tmp_path / "new", 0.5)
    given = {"env": command, "output": "new", "against": "old"}
    assert gate(**given)[:2] == (0, "status=0\n")
    put(tmp_path / "new", 0.4)
    status, outputs, printed = gate(**given, cannot_tell="warn")
    assert (status, outputs) == (1, "status=1\n")
    assert "::error title=T de::me/model: fell" in printed
    assert "fell" in (tmp_path / "summary.md").read_text()
    assert ET.parse(tmp_path / "xalign-gate.xml").getroot().attrib["failures"] == "1"
    assert gate(**given, tolerance="1,T=20")[0] == 0
    (tmp_path / "new/results/me__model/1/T.json").write_text("{")
    assert gate(**given)[:2] == (3, "status=3\n")
    assert gate(**given, cannot_tell="warn")[:2] == (0, "status=3\n")
    assert gate(**given, cannot_tell="maybe")[0] == 2
    assert gate(**{**given, "against": "$(touch hacked)"})[0] == 2
    assert not (tmp_path / "hacked").exists()


@pytest.fixture
def clean_python(tmp_path) -> Path:
    """A virtual environment that has our dependencies and not us."""
    import venv

    venv.create(tmp_path / "venv", with_pip=False)
    bin_, site = tmp_path / "venv" / "bin", next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return bin_


@pytest.mark.slow
def test_the_workflow_from_a_clean_folder(shell, gate, clean_python, workdir, tiny_model, write_text) -> None:
    """It installs, scores and compares; the release is the first run's own results, then better ones."""
    write_text(workdir / "text", 1500, ("deu",))  # enough that the gate can rule out a fall of a point
    for language in ("eng", "fra"):  # all found
        shutil.copy(workdir / "text" / "deu.txt", workdir / "text" / f"{language}.txt")
    (workdir / "model").symlink_to(tiny_model)
    (job,) = WORKFLOW["jobs"].values()
    env = {
        **{name: str(value) for name, value in job["env"].items()},
        "XALIGN": str(ROOT),
        "PYTHONPATH": "",
        "PATH": f"{clean_python}{os.pathsep}{os.environ['PATH']}",
    }
    steps = {step.get("name"): step for step in job["steps"]}
    for name in ("Install", "Score the new model"):
        status, _, printed = shell(steps[name]["run"], env)
        assert status == 0, printed
    assert (clean_python / "xalign").is_file()
    shutil.copytree(workdir / "new", workdir / "release")
    inputs = {
        name.replace("-", "_"): str(value) for name, value in steps["Compare it with the release"]["with"].items()
    }
    status, outputs, printed = gate(env=env, **inputs)
    assert (status, outputs) == (0, "status=0\n"), printed
    (result,) = (workdir / "new").rglob("OwnParallel.json")
    content = json.loads(result.read_text())
    for entry in content["scores"]["test"]:
        entry["main_score"] = 0.0
    result.write_text(json.dumps(content))
    assert gate(env=env, **inputs)[0] == 1
    assert shell(steps["Keep the new results"]["run"], env)[0] == 0
    assert (workdir / "results.tar.gz").stat().st_size > 1000


def test_our_own_workflow_trusts_as_little_as_it_can() -> None:
    """Rights to read alone, actions by commit, no credentials left on disk, packages by hash."""
    for path in (ROOT / ".github/workflows").iterdir():
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            assert job.get("permissions", {}).items() <= {"contents": "read", "id-token": "write"}.items()
            for step in job["steps"]:
                used = step.get("uses", "actions/none@" + "0" * 40)
                assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", used)
                assert "checkout" not in used or step["with"]["persist-credentials"] is False
                foreign = [line for line in step.get("run", "").splitlines() if re.search(r"(?<!uv )pip install", line)]
                assert all("--require-hashes" in line or "--no-deps" in line for line in foreign)
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["pinned"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]


def test_the_action_that_the_workflow_uses_is_here() -> None:
    (job,) = WORKFLOW["jobs"].values()
    (used,) = (step for step in job["steps"] if "/xalign/" in step.get("uses", ""))
    path = used["uses"].split("/xalign/")[1].split("@")[0]
    assert (ROOT / path / "action.yml").is_file()
    assert used["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, spec in ACTION["inputs"].items() if spec.get("required")} <= used["with"].keys()


def test_a_release_publishes_from_tags_alone_what_was_checked_and_run():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    script = "\n".join(step.get("run", "") for step in build["steps"])
    places = [script.index(part) for part in ("uv build", "twine check --strict", "uv pip install", "bin/xalign run")]
    assert places == sorted(places)
    assert publish["needs"] == "build"
    assert "startsWith(github.ref, 'refs/tags/v')" in publish["if"]
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in build  # only the job that publishes may ask for an identity
    assert publish["permissions"]["id-token"] == "write"
    assert publish["environment"] == "pypi"
    used = [step["uses"] for job in (build, publish) for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name in used)
