"""A command outlives the units of work that end its process; everything else passes through to its child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_models.cli.survival import Survivor
from xalign_models.errors import ModelError

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="needs Linux's waiting for signals")

SCRIPT = """
import os, signal, sys, time
from xalign_models.cli.survival import SURVIVOR
SURVIVOR.go_on()
begin = SURVIVOR.watch(2, 0.025)
for unit in sys.argv[1:]:
    reason = begin("a model", unit)
    print(unit, reason or "begins", flush=True)
    if reason:
        continue
    if unit == "abort":
        os.abort()
    if unit in {"segv", "kill"}:
        os.kill(os.getpid(), getattr(signal, "SIG" + unit.upper()))
    if unit == "hang":
        time.sleep(60)
    if unit == "wait":
        print(os.getpid(), flush=True)
        SURVIVOR.begin()
        time.sleep(60)
    if unit == "crash outside":
        SURVIVOR.begin()
        os.abort()
SURVIVOR.begin()
print("done", flush=True)
sys.exit(7)
"""


def survive(*units: str) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *units], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines()


def test_units_that_end_the_process_are_left_out_with_their_reason() -> None:
    status, lines = survive("good", "abort", "kill", "segv", "fine")
    assert status == 7
    assert lines[-6:] == [
        "good begins",
        "abort Its process crashed (SIGABRT); run it alone to see where.",
        "kill Its process was killed, most likely for want of memory.",
        "segv Its process crashed (SIGSEGV); run it alone to see where.",
        "fine begins",
        "done",
    ]
    assert lines.count("good begins") == 4  # once in each process


@pytest.mark.slow
def test_a_unit_that_takes_too_long_is_left_out() -> None:
    status, lines = survive("hang", "fine")
    assert (status, lines[-3:]) == (7, ["hang It took longer than 0.025 minutes.", "fine begins", "done"])


def test_a_crash_outside_of_all_units_ends_the_command_likewise() -> None:
    status, lines = survive("good", "crash outside")
    assert (status, lines) == (-signal.SIGABRT, ["good begins", "crash outside begins"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_child_and_none_outlives_its_parent(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, "wait"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = [process.stdout.readline(), process.stdout.readline()][1]
    process.send_signal(number)
    assert process.wait(10) in {-number, 1}  # Python ends with 1 after an interruption that it shows
    until = time.monotonic() + 10
    while Path(f"/proc/{int(child)}/stat").exists() and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)


def test_a_single_unit_may_end_the_command_and_a_limit_of_time_needs_a_parent() -> None:
    survivor = Survivor()
    assert survivor.watch(1)("a model") == ""
    assert survivor.watch(2) == survivor.begin
    with pytest.raises(ModelError, match="--timeout needs Linux"):
        survivor.watch(2, 1.0)


PLUGIN = """
import os, time
from xalign_models.evaluation import run
scored = run.run_one
def run_one(encoder, task, *rest):
    if encoder.mteb_model_meta.name.endswith("bad"):
        os.abort()
    return scored(encoder, task, *rest)
run.run_one = run_one
"""


@pytest.mark.slow
def test_a_model_that_crashes_costs_its_own_row_alone(
    make_model: Callable[..., Path], tiny_model: Path, workdir: Path, write_text: Callable[..., Path]
) -> None:
    write_text(workdir / "text", 60)
    (workdir / "crash.py").write_text(PLUGIN)
    models = ",".join(
        map(str, (tiny_model, make_model(workdir / "bad"), make_model(workdir / "good", intermediate_size=24)))
    )
    arguments = ["run", "-m", models, "-t", "OwnParallel", "--data", "own=text", "--plugin", "crash.py", "--json"]
    command = [sys.executable, "-m", "xalign_models.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    rows = json.loads(done.stdout)
    assert (done.returncode, [row["scored"] for row in rows]) == (1, [True, False, True]), done.stderr
    assert rows[1]["error"] == "Its process crashed (SIGABRT); run it alone to see where."
    assert [row["fresh"] for row in rows] == [False, False, True]  # the first process had scored the first
