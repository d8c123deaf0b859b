"""FLOPs of encoding, training and mining, and the measured FLOP/s of a device."""

import time
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import linear

from benchmarks.devices import synchronise
from xalign_models.linalg import onednn


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


def mining_flops(queries: int, candidates: int, dim: int) -> int:
    """FLOPs of all inner products, 2 n_q n_c d; they serve both directions."""
    return 2 * queries * candidates * dim


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
