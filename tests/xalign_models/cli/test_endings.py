"""How a command ends that is interrupted or told to end, or that writes to a terminal that cannot show its text."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xalign_models.cli import main

COMMAND = [sys.executable, "-m", "xalign_models.cli"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.25, 1.0])
def test_a_signal_ends_a_command_in_one_line(workdir: Path, number: signal.Signals, seconds: float) -> None:
    """The first of them while the application is imported."""
    slow = (
        "import sys, time\nimport xalign_models.cli as cli\n"
        "class Finder:\n    def find_spec(self, name, *rest):\n"
        "        if name == 'xalign_models.cli.app': print('here', flush=True); time.sleep(30)\n"
        "sys.meta_path.insert(0, Finder())\ncli.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(seconds)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert errors.count("\n") == 1
    assert "reuses whatever was stored" in errors


def test_a_terminal_of_ascii_shows_what_it_can(workdir: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    name = "modèle-\N{SNOWMAN}"
    done = subprocess.run(
        [*COMMAND, "run", "-m", name, "-t", "GettextPrecision"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "mod\\xe8le-\\u2603" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("ending", ["--json | true", "2>&1 | true", ">&-", "--json >&- 2>&-"])
@pytest.mark.parametrize(("score", "verdict"), [(0.5, 0), (0.1, 1)])
def test_a_verdict_is_the_status_whoever_reads(tmp_path: Path, ending: str, score: float, verdict: int) -> None:
    for root, value in (("old", 0.5), ("new", score)):
        folder = tmp_path / root / "results" / "a__b" / "r1"
        folder.mkdir(parents=True)
        entries = [{"hf_subset": f"s{i}", "languages": ["deu-Latn"], "main_score": value} for i in range(300)]
        (folder / "T.json").write_text(json.dumps({"dataset_revision": "1", "scores": {"test": entries}}))
    command = f"{shlex.join(COMMAND)} gate -o new --against old {ending}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (verdict, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("full", ["stdout", "stderr"])
def test_an_output_that_a_full_disk_cuts_is_an_error(workdir: Path, full: str) -> None:
    command = [*COMMAND, *(("tasks", "--json") if full == "stdout" else ("gate", "--against", "nowhere"))]
    with Path("/dev/full").open("w") as device:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: device}
        done = subprocess.run(command, check=False, text=True, cwd=workdir, **streams)
    assert done.returncode == 2
    assert (done.stderr or "").splitlines() == ["error: [Errno 28] No space left on device"] * (full == "stdout")


def test_an_error_is_2_whoever_reads(tmp_path: Path) -> None:
    command = f"{shlex.join(COMMAND)} gate --against nowhere 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], check=False, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RecursionError("too deep"), "This is unexpected"),
        (KeyError("field"), "This is unexpected"),
        (UnicodeEncodeError("ascii", "é", 0, 1, "no"), "This is unexpected"),
        (RuntimeError("Could not determine home directory."), "Set HOME to a folder."),
    ],
)
def test_an_error_of_no_kind_of_ours_ends_in_one_line(monkeypatch, capsys, error, part) -> None:
    from xalign_models.cli import app

    def raising(*_, **__):
        raise error

    monkeypatch.setattr(app, "root", lambda: raising)
    monkeypatch.setattr(sys, "argv", ["xalign", "models"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    captured = capsys.readouterr().err
    assert captured.startswith("error: ")
    assert part in captured
    assert captured.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run --languages qqq", "Unknown ISO 639-3 language code 'qqq'"),
        ("fit lsar -o x --backbone y --languages qqq", "Unknown ISO 639-3 language code 'qqq'"),
        ("recommend --backbone y --corpus ntrex --languages qqq", "Unknown ISO 639-3 language code 'qqq'"),
        ("fit nosuch -o x --backbone all-MiniLM-L6-v2", "Unknown alignment 'nosuch'"),
        ("fit lsar -o x --backbone nosuch", "Unknown model 'nosuch'"),
        ("fit lsar -o x --from all-MiniLM-L6-v2 --to nosuch --corpus ntrex", "Unknown model 'nosuch'"),
        ("recommend --backbone nosuch --corpus ntrex", "Unknown model 'nosuch'"),
        ("try nosuch .", "Unknown model 'nosuch'"),
        ("fit lsar -o x --backbone all-MiniLM-L6-v2 --param nosuch=1", "lsar has no nosuch"),
        ("fit lsar -o x --backbone all-MiniLM-L6-v2 --corpus nosuch", "Unknown corpus 'nosuch'"),
        ("fit lsar -o x --backbone all-MiniLM-L6-v2 --corpus own:absent", "absent does not exist"),
        ("fit lsar -o x --backbone all-MiniLM-L6-v2 --corpus own:latin", "eng.txt is not UTF-8"),
        ("fit procrustes -o x --backbone all-MiniLM-L6-v2 --corpus own:uneven", "they must align"),
        ("fit auto -o x --backbone all-MiniLM-L6-v2 --corpus own:uneven", "they must align"),
        ("fit affine -o x --from all-MiniLM-L6-v2 --to gemma-3-270m-q4 --corpus own:latin", "eng.txt is not UTF-8"),
        ("recommend --backbone all-MiniLM-L6-v2 --corpus own:uneven", "they must align"),
        ("try all-MiniLM-L6-v2 uneven", "are not aligned"),
        ("index fix index.npz --model all-MiniLM-L6-v2 -o x --corpus own:latin", "eng.txt is not UTF-8"),
        ("try y absent", "absent: no such folder"),
        ("index audit absent.parquet --model y", "absent.parquet does not exist"),
        ("index fix absent.parquet --model y -o x", "absent.parquet does not exist"),
        ("index migrate absent.parquet --from y --to z -o x", "absent.parquet does not exist"),
    ],
)
def test_a_mistake_is_refused_before_anything_heavy_is_imported(command, message, tmp_path):
    np.savez(tmp_path / "index.npz", vectors=np.eye(4, dtype=np.float32), texts=["a", "b", "c", "d"])
    for name, english in (("latin", b"caf\xe9\n"), ("uneven", b"one\ntwo\nthree\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "eng.txt").write_bytes(english)
        (tmp_path / name / "deu.txt").write_text("eins\nzwei\n")
    script = (
        "import sys; from xalign_models.cli import main\n"
        f"sys.argv = ['xalign', *{command.split()}]\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n"
        "    print(leaving.code, [name for name in ('torch', 'mteb', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.split("\n")[0] == "2 []"
    assert message in done.stderr


def test_a_misspelt_backbone_is_corrected_by_backbones_and_not_by_aligned_models(xalign):
    _, _, err = xalign("fit", "lsar", "--backbone", "all-MiniLM-L6-v3", "--corpus", "ntrex", "-o", "x")
    assert "Did you mean all-MiniLM-L6-v2" in err[-1]
    assert "xalign/" not in err[-1]


def test_an_argument_that_is_not_utf8_is_named(xalign: Callable[..., tuple[int, str, list[str]]]) -> None:
    status, _, errors = xalign("choose", "--languages", os.fsdecode(b"de\xff"))
    assert status == 2
    assert errors == [r"error: 'de\udcff' is not UTF-8. Type it again in a UTF-8 terminal."]
