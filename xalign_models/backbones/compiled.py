"""Transformer layers compiled by torch, on a GPU: fewer launches, and intermediate results that stay off its memory.

All layers of one kind are compiled once, for packs of any size.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from xalign_models.errors import ModelError

COMPILER = "inductor"
"""Torch's name of what turns a graph into kernels."""


def require(device: str) -> None:
    """Refuse a device for which layers are not compiled.

    Raises:
        ModelError: It is no GPU with CUDA, or the compiler lacks its package.
    """
    if not device.startswith("cuda"):
        raise ModelError(f"--backend compiled is for GPUs with CUDA, not for {device}; leave it out.")
    if find_spec("triton") is None:
        raise ModelError("--backend compiled needs the package triton: pip install triton, or leave it out.")


def compile_layers(model: Any) -> None:
    """Compile those layers of a transformers model that are not compiled yet: each when it is first called.

    Raises:
        ModelError: The device is none for it, packs need more than one kernel, whose number a graph would fix, or the
            model has no such layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    from xalign_models.backbones.borrowed import is_compiled
    from xalign_models.backbones.packing import find_kernel

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    waiting = [layer for layer in layers if not is_compiled(layer)]
    if layers and not waiting:
        return
    require(str(model.device))
    if not layers or find_kernel(model) is None:
        raise ModelError(
            f"--backend compiled does not know the layers of a {type(model).__name__} in {model.dtype}; leave it out."
        )
    for layer in waiting:
        layer.compile(dynamic=True, backend=COMPILER)
