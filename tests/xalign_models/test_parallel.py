"""Work in copies of the process: results as without them, whatever becomes of the copies."""

import os
import signal
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from xalign_models import parallel
from xalign_models.boards.baseline import DEFAULT, Before
from xalign_models.boards.gate import compare
from xalign_models.boards.leaderboard import leaderboard
from xalign_models.page.outcomes import outcomes_data
from xalign_models.page.packing import Numbered
from xalign_models.parallel import MANY, map_forked
from xalign_models.results.reading import TaskScores, read_results

ROOT = Path(__file__).parents[2]
needs_copies = pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies processes")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process like that of the command: two processors, and neither torch nor threads, which the tests have."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


class Pair:
    """This process and its copy: each waits in :meth:`meet` for its first item until the other one has one, too."""

    def __init__(self) -> None:
        self.first, self.met = os.getpid(), False
        self.pipes = os.pipe(), os.pipe()

    def meet(self) -> bool:
        """Wait for the other process; whether this one is the copy."""
        copy = os.getpid() != self.first
        if not self.met:
            os.write(self.pipes[copy][1], b"!")
            os.read(self.pipes[not copy][0], 1)
            self.met = True
        return copy


@needs_copies
def test_both_processes_do_items_and_the_results_stand_in_order() -> None:
    pair = Pair()
    results = map_forked(lambda number: (number**2, pair.meet()), range(100), MANY)
    assert [square for square, _ in results] == [number**2 for number in range(100)]
    assert {copy for _, copy in results} == {True, False}


def test_few_files_are_not_worth_a_copy() -> None:
    assert map_forked(lambda number: os.getpid(), range(9), MANY - 1) == [os.getpid()] * 9


def test_a_process_with_threads_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert map_forked(lambda number: os.getpid(), range(9), MANY) == [os.getpid()] * 9


def test_a_process_with_torch_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", os)
    assert map_forked(lambda number: os.getpid(), range(9), MANY) == [os.getpid()] * 9


@needs_copies
def test_many_processors_get_no_more_than_the_most_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(100)))
    started, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: started.append(1) or fork())
    assert map_forked(lambda number: number, range(100), MANY) == [*range(100)]
    assert len(started) == parallel.MOST - 1


def test_a_python_without_shared_memory_files_does_all_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert map_forked(lambda number: os.getpid(), range(9), MANY) == [os.getpid()] * 9


@needs_copies
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_first_process_does_the_items_of_a_copy_that_was_ended(ending: int) -> None:
    pair = Pair()

    def square(number: int) -> int:
        if pair.meet():
            os.kill(os.getpid(), ending)
        return number**2

    assert map_forked(square, range(100), MANY) == [number**2 for number in range(100)]


@needs_copies
def test_an_error_reaches_the_first_process_wherever_it_occurs() -> None:
    pair = Pair()

    def fail(number: int) -> None:
        pair.meet()
        raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item"):
        map_forked(fail, range(100), MANY)


@needs_copies
def test_one_process_does_all_items_where_no_other_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert map_forked(lambda number: os.getpid(), range(5), MANY) == [os.getpid()] * 5


@needs_copies
def test_board_and_gate_are_the_same_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for many in (10**9, 1):
        monkeypatch.setattr(parallel, "MANY", many)
        results = read_results(ROOT)
        board = leaderboard(results, study=False)
        report = compare(results, Before(results, {DEFAULT: 1.0}), tasks=["XQuAD-R", "STS17CrossLingual"])
        scores = {key: {m: table.values(m) for m in table.columns} for key, table in results.tables.items()}
        outcomes.append((scores, results.metadata, board, report))
    assert outcomes[0] == outcomes[1]


@needs_copies
@pytest.mark.parametrize("most", [10**9, 30_000, 0])
def test_outcomes_in_the_page_are_the_same_from_copies(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xalign_models.page.outcomes.MOST_OUTCOMES", most)
    results, tables = read_results(ROOT), defaultdict[int, dict[int, TaskScores]](dict)
    tasks = ("GettextPrecision", "STS17CrossLingual", "SIB200ZeroShot", "TweetSentimentZeroShot")
    for row, ((_, task), table) in enumerate(results.tables.items()):
        if task in tasks:
            tables[tasks.index(task)][row] = table
    found = []
    for many in (10**9, 1):
        monkeypatch.setattr(parallel, "MANY", many)
        found.append(outcomes_data(tables, Numbered()))
    assert found[0] == found[1]
    assert bool(found[0][0]) == bool(most)
    assert ({block["task"] for block in found[0][0]} == {0, 2, 3}) == (most == 10**9)
