"""Results, baselines and logs of damage or malice: every command that reads them ends in one line, with its own status.

``python -m tests.chaos --fuzz N`` tries N / 20 of them; the number here is small.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.hostile import spoil
from xalign_models.cli import main

RESULTS = Path(__file__).parents[2] / "results"
COUNT = max(8, int(os.environ.get("XALIGN_FUZZ", "0")) // 20)
SEED = int(os.environ.get("XALIGN_CHAOS_SEED", "0"))
TASKS = ("Tatoeba36", "STS17CrossLingual")
COMMANDS = (
    ("leaderboard",), ("leaderboard", "--json"), ("leaderboard", "--markdown"), ("leaderboard", "--format", "latex"),
    ("leaderboard", "--tasks", "Tatoeba36", "--by-language"), ("leaderboard", "--format", "csv", "--means"), ("gate",),
    ("gate", "--json"), ("gate", "--junit", "report.xml"), ("gate", "--update"), ("gate", "--against", "old"),
    ("verify",), ("verify", "--clean"),
)  # fmt: skip
MORE = 12 << 30
"""Bytes of address space that a command may take: a reader without bounds fails instead of taking all memory."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of the repository's results, the same as old results, and a baseline."""
    root = tmp_path_factory.mktemp("good")
    for model in ("xalign__plain__all-MiniLM-L6-v2", "xalign__centered__all-MiniLM-L6-v2"):
        (revision,) = (RESULTS / model).iterdir()
        names = [f"{task}.json" for task in TASKS] + [f"items/{task}.npz" for task in TASKS]
        for name in (*names, "model_meta.json", "run_settings.jsonl"):
            if (revision / name).is_file():
                copy = root / "results" / model / revision.name / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(revision / name, copy)
    shutil.copytree(root / "results", root / "old" / "results")
    return root


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def status(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["xalign", *arguments])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.mark.slow
def test_no_file_of_results_brings_a_command_down(good, workdir, capfd, monkeypatch) -> None:
    rng = random.Random(SEED)
    monkeypatch.chdir(good)
    assert status(("gate", "--update"), monkeypatch) == 0
    counts: Counter[str] = Counter()
    for _ in range(COUNT):
        folder = workdir / "attempt"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        monkeypatch.chdir(folder)
        path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        done, command = spoil(path, rng), rng.choice(COMMANDS)
        capfd.readouterr()
        ended = status(command, monkeypatch)
        printed = capfd.readouterr()
        said = f"{path.relative_to(folder)}: {done}; {' '.join(command)}: {ended} {printed.err[-500:]}"
        assert ended in {0, 1, 2, 3}, said
        assert "not expected" not in printed.err, said
        assert "Traceback" not in printed.err, said
        assert all(letter in "\n\t" or letter.isprintable() for letter in printed.out), said
        counts["accepted" if ended in {0, 1} else "refused"] += 1
    if log := os.environ.get("XALIGN_CHAOS_LOG"):
        with Path(log).open("a") as handle:
            handle.write(json.dumps({"function": "commands on damaged results", **counts}) + "\n")
    assert counts["accepted"]
