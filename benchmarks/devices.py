"""Devices that a benchmark runs on, facts about the machine, and the resident memory of its process."""

import platform
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
"""Marks a benchmark that runs on the CPU and on a GPU; without the mark, the fixture ``device`` is the CPU."""


def synchronise(device: str) -> None:
    """Wait until a GPU has done its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def memory_growth() -> Callable[[], int]:
    """Start counting, and return a function that gives the largest growth in resident memory so far, in bytes.

    Skips the benchmark where Linux does not report peak memory.
    """
    forget_peak, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not forget_peak.exists():
        pytest.skip("needs the peak memory that Linux reports")

    def resident(field: str) -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return 1024 * int(line.split()[1])

    forget_peak.write_text("5")
    before = resident("VmRSS")
    return lambda: resident("VmHWM") - before


def gpu_clocks() -> str:
    """The GPU's clocks and their maxima, from nvidia-smi."""
    query = "--query-gpu=clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem"
    return _output("nvidia-smi", query, "--format=csv,noheader") or "unknown"


@cache
def processor() -> str:
    """The processor's name and the vector instructions that it has."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    facts = {name.strip(): value.lstrip("\t: ") for name, tab, value in (line.partition("\t") for line in lines) if tab}
    flags = sorted({"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8"} & {*facts.get("flags", "").split()})
    return ", ".join([facts.get("model name") or platform.processor() or platform.machine(), *flags])


@cache
def revision() -> str:
    """Git's name of the measured revision."""
    return _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty") or "unknown"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
