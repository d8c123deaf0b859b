"""How much work there is, counted, and how fast the device can do work, measured."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import linear

from xalign_models.linalg import onednn


def linear_weights(model: nn.Module) -> int:
    """W: weights of the linear layers that each token is multiplied with: without embeddings, and without a pooler."""
    return sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name
    )


def encode_flops(lengths: Sequence[int], weights: int, layers: int, dim: int, causal: bool = False) -> int:
    """FLOPs of encoding texts of s real tokens each: s (2 W + 4 L d s), half of the second term if causal."""
    attention = (2 if causal else 4) * layers * dim
    return sum(s * (2 * weights + attention * s) for s in lengths)


def model_flops(lengths: Sequence[int], first: nn.Module, weights: int | None = None) -> int:
    """FLOPs of encoding texts of these lengths with the transformer of a first module; its W unless it is given."""
    config = first.model.config
    heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    causal = any(getattr(module, "is_causal", False) for module in first.model.modules())
    width = heads * config.num_attention_heads
    return encode_flops(lengths, weights or linear_weights(first.model), config.num_hidden_layers, width, causal)


def mining_flops(queries: int, candidates: int, dim: int) -> int:
    """FLOPs of all inner products, which serve both directions: 2 n_q n_c d."""
    return 2 * queries * candidates * dim


def peak_flops(device: str, dtype: torch.dtype = torch.float32, size: int | None = None, repeats: int = 5) -> float:
    """FLOP/s of the best of some square products of random data on the threads or the device that is used now.

    By the library that encoding takes for its linear layers.
    """
    size = size or (1024 if device == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    with torch.no_grad(), onednn.Linear():
        for _ in range(repeats + 1):  # the first warms up
            _synchronise(device)
            start = time.perf_counter()
            linear(a, b)
            _synchronise(device)
            best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
