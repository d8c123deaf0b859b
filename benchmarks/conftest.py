"""Fixtures of the benchmarks: fixed threads, devices, interleaved comparisons, and numbers to note and print."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from benchmarks.devices import gpu_clocks, model_flops, peak_flops, processor, revision, synchronise
from xalign_models.backbones import pipeline
from xalign_models.backbones.raw import Counts, RawEncoder

QUICK = {"bench_rows": 16, "bench_texts": 12, "bench_dims": "384", "bench_all_languages": 4}
"""Values under --quick of options that are not given."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "peft", "numpy", "scipy")


def pytest_addoption(parser):
    group = parser.getgroup("xalign benchmarks")
    group.addoption(
        "--quick",
        action="store_true",
        help="run the benchmarks marked quick, on small data and in three rounds at most",
    )
    group.addoption(
        "--bench-findings",
        type=Path,
        default=Path(".benchmarks/findings.jsonl"),
        help="file for each benchmark's numbers, written as it ends; xalign gate --throughput reads it",
    )
    group.addoption("--bench-threads", type=int, default=1, help="CPU threads of everything that is timed")
    group.addoption("--bench-corpus", default="gettext:test", help="corpus of test_harness, such as flores")
    group.addoption(
        "--bench-languages", default="de en fr ru", help="languages of that corpus; gettext must have them too"
    )
    group.addoption("--bench-rows", type=int, default=100, help="rows of each of its languages, from the top")
    group.addoption(
        "--bench-all-languages", type=int, default=24, help="languages of test_mining's all pairs; FLORES has 204"
    )
    group.addoption("--bench-board-languages", default="ar de en es ru zh", help="languages of the whole leaderboard")
    group.addoption("--bench-board-pairs", type=int, default=4, help="number of its languages in Tatoeba")
    group.addoption("--bench-board-rows", type=int, default=12, help="its rows for each language and track")
    group.addoption("--bench-texts", type=int, default=400, help="texts of test_encode's real corpus")
    group.addoption("--bench-dims", default="384 768 1024", help="dimensions of test_align, such as '384 1024 4096'")
    group.addoption(
        "--bench-profile", type=Path, help="file for the longest GPU kernels of each GPU benchmark, as JSON"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: a benchmark that --quick runs")
    if config.getoption("--quick"):
        for name, value in QUICK.items():
            if getattr(config.option, name) == config._parser.optparser.get_default(name):
                setattr(config.option, name, value)


def pytest_collection_modifyitems(config, items):
    """Leave out, under --quick, benchmarks that are not marked, that need a GPU, or with dimensions above 384."""
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_quick(item)])
        items[:] = filter(_is_quick, items)


def _is_quick(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    marked = item.get_closest_marker("quick") and not item.get_closest_marker("gpu")
    return marked and parameters.get("d", 384) <= 384


def pytest_generate_tests(metafunc):
    if "d" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_align"):
        metafunc.parametrize("d", [int(d) for d in metafunc.config.getoption("--bench-dims").split()])


@pytest.fixture(scope="session", autouse=True)
def threads(pytestconfig) -> Iterator[int]:
    """Give torch, numpy and scipy the same number of threads, whatever the environment says."""
    count = pytestconfig.getoption("--bench-threads")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    os.environ["TOKENIZERS_PARALLELISM"] = str(count > 1).lower()
    with threadpool_limits(count):
        yield count
    torch.set_num_threads(before)


@pytest.fixture
def device(request) -> str:
    """The CPU, or the devices of :data:`benchmarks.devices.every_device`."""
    return request.getfixturevalue("cuda") if getattr(request, "param", "cpu") == "cuda" else "cpu"


@pytest.fixture
def cuda() -> str:
    """A GPU, for benchmarks that would take too long without."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return "cuda"


@pytest.fixture(scope="session")
def findings(pytestconfig) -> Path:
    """The file for this run's numbers, emptied first."""
    path = pytestconfig.rootpath / pytestconfig.getoption("--bench-findings")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.fixture
def note(benchmark, threads, request, findings) -> Iterator[Callable[..., None]]:
    """Put numbers beside a benchmark's times, after the device, threads, versions and revision that it ran with.

    They are printed as the benchmark ends.
    """
    where = request.getfixturevalue("device") if "device" in request.fixturenames else "cpu"
    on_gpu = where == "cuda" or "cuda" in request.fixturenames
    benchmark.extra_info.update(
        device=torch.cuda.get_device_name() if on_gpu else "cpu",
        clocks=gpu_clocks() if on_gpu else None,
        threads=threads,
        dtype="float32",
        versions={package: version(package) for package in PACKAGES},
        processor=processor(),
        revision=revision(),
    )
    before = {**benchmark.extra_info}
    yield benchmark.extra_info.update
    info, plugins = benchmark.extra_info, request.config.pluginmanager
    entry = {"fullname": request.node.nodeid, "name": request.node.name, "extra_info": info}
    with findings.open("a") as file:
        file.write(json.dumps(entry, default=str) + "\n")
    numbers = [in_words(key, value) for key, value in info.items() if key not in before]
    times = [f"{1e3 * benchmark.stats.stats.median:.3g} ms"] if benchmark.stats else []
    if line := ", ".join(filter(None, [*times, *numbers])):
        with plugins.getplugin("capturemanager").global_and_fixture_disabled():
            plugins.getplugin("terminalreporter").write_line(f"{request.node.name}: {line}")


def in_words(key: str, value: Any) -> str:
    """A number that a benchmark noted, with its name, or the least and the greatest of several; else nothing."""
    name, numbers = key.replace("_", " "), np.asarray(value)
    if numbers.dtype.kind not in "if" or not numbers.size:
        return f"{name} {value}" if isinstance(value, str) else ""
    if key.endswith("bytes"):
        name, numbers = name.replace("bytes", "MiB"), (numbers / 2**20).round()
    ends = dict.fromkeys(f"{end:,.4g}" for end in (numbers.min(), numbers.max()))
    return f"{name} {' to '.join(ends)}"


@pytest.fixture
def profile(pytestconfig, request) -> Callable[[Callable[[], Any]], None]:
    """Add a function's longest GPU kernels to the file of ``--bench-profile``, if that is given."""

    def run(function: Callable[[], Any], top: int = 20) -> None:
        path = pytestconfig.getoption("--bench-profile")
        if path is None:
            return
        from torch.profiler import ProfilerActivity

        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as recorded:
            function()
            torch.cuda.synchronize()
        kernels = sorted(recorded.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
        total, rows = sum(kernel.self_device_time_total for kernel in kernels), []
        for kernel in kernels[:top]:
            spent = kernel.self_device_time_total
            rows.append({"kernel": kernel.key[:120], "calls": kernel.count, "ms": spent / 1e3, "share": spent / total})
        known = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**known, request.node.name: rows}, indent=1) + "\n")

    return run


@dataclass(frozen=True)
class Pair:
    """Results of both sides of a comparison, and the median time of ours; nan under ``--benchmark-disable``."""

    ours: Any
    theirs: Any
    seconds: float


@pytest.fixture
def compare(device, benchmark, note, pytestconfig) -> Callable[..., Pair]:
    """Time two functions in turns in one process, so that both meet the same noise, and note the median ratio.

    The ratio of a round is the alternative's time divided by ours; above 1, ours is faster. The same ratio of processor
    time over all threads is noted, too, which other processes hardly disturb.
    """
    quick = pytestconfig.getoption("--quick")

    def clock(function: Callable[[], Any]) -> tuple[Any, float, float]:
        start, work = time.perf_counter(), time.process_time()
        result = function()
        synchronise(device)
        return result, time.perf_counter() - start, time.process_time() - work

    def run(ours: Callable[[], Any], theirs: Callable[[], Any], against: str, rounds: int = 5) -> Pair:
        rounds = min(rounds, 3) if quick else rounds
        alternative: list[tuple[Any, float, float]] = []
        own: list[tuple[Any, float, float]] = []

        def timed() -> Any:
            own.append(clock(ours))
            return own[-1][0]

        result = benchmark.pedantic(
            timed, setup=lambda: alternative.append(clock(theirs)), rounds=rounds, warmup_rounds=1
        )
        if benchmark.disabled:
            return Pair(result, alternative[-1][0], float("nan"))
        pairs = list(zip(own[1:], alternative[1:], strict=True))  # the first warms up
        ratios = sorted(b[1] / a[1] for a, b in pairs)
        work = [b[2] / a[2] for a, b in pairs]
        note(ratio=median(ratios), against=against, ratios=ratios, processor_ratio=median(work), processor_ratios=work)
        return Pair(result, alternative[-1][0], median(a[1] for a, _ in pairs))

    return run


@pytest.fixture
def clocked(benchmark) -> Callable[..., tuple[Any, float]]:
    """Time a function, and return its result and median seconds; those of its one call under --benchmark-disable."""

    def run(function: Callable[[], Any], rounds: int = 1, warmup_rounds: int = 0) -> tuple[Any, float]:
        start = time.perf_counter()
        result = benchmark.pedantic(function, rounds=rounds, warmup_rounds=warmup_rounds)
        whole = time.perf_counter() - start
        return result, whole if benchmark.disabled else benchmark.stats.stats.median

    return run


@pytest.fixture
def report(note) -> Callable[..., None]:
    """Note a model's speed and the share of the device's measured peak that it reaches."""

    def run(
        device: str, seconds: float, tokens: int, flops: int, *, pairs: int = 0, dtype: torch.dtype = torch.float32,
        **info: Any,
    ) -> None:  # fmt: skip
        peak = peak_flops(device, dtype)
        note(dtype=str(dtype).removeprefix("torch."), tokens=tokens, tokens_per_s=tokens / seconds, flops=flops,
             peak=peak, fraction_of_roofline=flops / seconds / peak, **info)  # fmt: skip
        if pairs:
            note(pairs_per_s=pairs / seconds)

    return run


@pytest.fixture
def encode(compare, report, device) -> Callable[..., tuple[Counts, list[int]]]:
    """Time our encoder against another way to encode texts with the same modules, and check that both agree.

    The function that it gives returns the counts of one run, and the tokens of each distinct text.
    """

    def run(
        modules: Sequence[nn.Module],
        texts: list[str],
        prompt: str,
        theirs: Callable[[], Any],
        against: str,
        **info: Any,
    ) -> tuple[Counts, list[int]]:
        first, raw = modules[0], RawEncoder("", lambda: modules, device)
        pair = compare(lambda: RawEncoder("", lambda: modules, device).encode(texts, prompt), theirs, against, 3)
        largest, dtype = np.abs(pair.theirs).max(), first.model.dtype
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        np.testing.assert_allclose(pair.ours / largest, pair.theirs / largest, rtol=0, atol=tolerance)
        raw.encode(texts, prompt)
        counts, lengths = raw.counts, pipeline.token_counts(first, list(dict.fromkeys(texts)), prompt)
        report(device, pair.seconds, counts.real_tokens, model_flops(lengths, first), dtype=dtype,
               useful_share=counts.real_tokens / counts.computed_tokens, **info)  # fmt: skip
        return counts, lengths

    return run
