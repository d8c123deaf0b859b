"""Devices that a benchmark runs on, and the resident memory of its process."""

from __future__ import annotations

from collections.abc import Callable
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
