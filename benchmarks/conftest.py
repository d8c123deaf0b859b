"""What the benchmarks share: fixed threads, devices, interleaved A/B pairs, and one printed line per finding."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

LINES = pytest.StashKey[list[str]]()
PACKAGES = ("torch", "transformers", "sentence-transformers", "numpy", "scipy")


def pytest_addoption(parser):
    group = parser.getgroup("xalign benchmarks")
    group.addoption("--bench-threads", type=int, default=1, help="CPU threads of everything that is timed")
    group.addoption("--bench-corpus", default="gettext:test", help="corpus of test_harness, e.g. flores")
    group.addoption("--bench-languages", default="de en fr ru", help="its languages; gettext must have them too")
    group.addoption(
        "--bench-all-languages", type=int, default=24, help="languages of test_mining's all pairs; Flores: 204"
    )
    group.addoption("--bench-board-languages", default="ar de en es ru zh", help="of the whole leaderboard")
    group.addoption("--bench-board-pairs", type=int, default=4, help="its languages of Tatoeba")
    group.addoption("--bench-board-rows", type=int, default=12, help="its rows per language and track")
    group.addoption("--bench-rows", type=int, default=100, help="its rows per language, from the top")


def pytest_configure(config):
    config.stash[LINES] = []


def pytest_terminal_summary(terminalreporter, config):
    if config.stash[LINES]:
        terminalreporter.section("findings")
        for line in config.stash[LINES]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def threads(pytestconfig) -> Iterator[int]:
    """The same number of threads for torch, numpy and scipy, whatever the environment says."""
    count = pytestconfig.getoption("--bench-threads")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with threadpool_limits(count):
        yield count
    torch.set_num_threads(before)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


@pytest.fixture
def say(pytestconfig) -> Callable[[str], None]:
    """Print a line at the end of the run."""
    return pytestconfig.stash[LINES].append


@pytest.fixture
def note(benchmark, threads, request) -> Callable[..., None]:
    """Put numbers beside a benchmark's times; versions, threads, dtype and device go there by themselves."""
    where = request.getfixturevalue("device") if "device" in request.fixturenames else "cpu"
    benchmark.extra_info.update(
        device=torch.cuda.get_device_name() if where == "cuda" else "cpu",
        threads=threads,
        dtype="float32",
        versions={package: version(package) for package in PACKAGES},
    )
    return benchmark.extra_info.update


@dataclass(frozen=True)
class Pair:
    """What the two sides of a comparison returned, and how long they took.

    Attributes:
        ours: Result of our side.
        theirs: Result of the alternative.
        seconds: Median of ours; nan under ``--benchmark-disable``.
        ratio: Median over the pairs of the alternative's time over ours: above 1, ours is faster.
    """

    ours: Any
    theirs: Any
    seconds: float
    ratio: float


@pytest.fixture
def compare(device, benchmark, note, say) -> Callable[..., Pair]:
    """Time two functions in turns in one process: A and B meet the same noise, and the median of B/A is reported."""

    def clock(function: Callable[[], Any]) -> tuple[Any, float]:
        start = time.perf_counter()
        result = function()
        if device == "cuda":
            torch.cuda.synchronize()
        return result, time.perf_counter() - start

    def run(
        label: str, ours: Callable[[], Any], theirs: Callable[[], Any], against: str, rounds: int = 5, **info: Any
    ) -> Pair:
        alternative: list[tuple[Any, float]] = []
        own: list[tuple[Any, float]] = []

        def timed() -> Any:
            own.append(clock(ours))
            return own[-1][0]

        result = benchmark.pedantic(
            timed, setup=lambda: alternative.append(clock(theirs)), rounds=rounds, warmup_rounds=1
        )
        if benchmark.disabled:
            return Pair(result, alternative[-1][0], float("nan"), float("nan"))
        times = [(a, b) for (_, a), (_, b) in zip(own[1:], alternative[1:], strict=True)]  # the first warms up
        ratios = sorted(b / a for a, b in times)
        pair = Pair(result, alternative[-1][0], statistics.median(a for a, _ in times), statistics.median(ratios))
        note(ratio=pair.ratio, ratios=ratios, against=against, **info)
        say(
            f"{label} [{device}]: {1e3 * pair.seconds:.3g} ms, {pair.ratio:.2f}x as fast as {against} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {rounds} pairs)"
        )
        return pair

    return run
