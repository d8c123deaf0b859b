"""Devices that a benchmark runs on, facts about the machine, memory of its process, and FLOPs against its peak."""

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from xalign_models.linalg import onednn

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


def linear_weights(model: nn.Module) -> int:
    """W: the number of weights in linear layers that each token is multiplied with; no embeddings, no pooler."""
    return sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name
    )


def encode_flops(lengths: Sequence[int], weights: int, layers: int, dim: int, causal: bool = False) -> int:
    """FLOPs of encoding texts of s real tokens each: s (2 W + 4 L d s), with half the second term if causal."""
    attention = (2 if causal else 4) * layers * dim
    return sum(s * (2 * weights + attention * s) for s in lengths)


def model_flops(lengths: Sequence[int], first: nn.Module, weights: int | None = None) -> int:
    """FLOPs of encoding texts of these lengths with a first module's transformer; ``weights`` replaces its own W."""
    config = first.model.config
    heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    causal = any(getattr(module, "is_causal", False) for module in first.model.modules())
    width = heads * config.num_attention_heads
    return encode_flops(lengths, weights or linear_weights(first.model), config.num_hidden_layers, width, causal)


def peak_flops(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of a few square products of random data, with the library that encoding uses.

    On a CPU, the number of threads is that of the process.
    """
    size = 1024 if device == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    with torch.no_grad(), onednn.Linear():
        for _ in range(6):  # the first warms up
            synchronise(device)
            start = time.perf_counter()
            linear(a, b)
            synchronise(device)
            best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
