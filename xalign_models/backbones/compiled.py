"""Compiles transformer layers with torch on a GPU: fewer kernel launches and less memory traffic.

All layers of one kind are compiled once, for packs of any size.
"""

from importlib.util import find_spec
from typing import Any

from xalign_models.errors import ModelError

COMPILER = "inductor"
"""Torch's name for the compiler."""


def require(device: str) -> None:
    """Refuse a device for which layers are not compiled.

    Raises:
        ModelError: The device is not a GPU with CUDA, or the compiler's package is missing.
    """
    if not device.startswith("cuda"):
        raise ModelError(f"--backend compiled needs a GPU with CUDA, not {device}; leave it out.")
    if find_spec("triton") is None:
        raise ModelError("--backend compiled needs the package triton: pip install triton, or leave it out.")


def compile_layers(model: Any) -> None:
    """Mark the layers of a transformers model for compilation; each is compiled on its first call.

    Raises:
        ModelError: The device does not support it, the model's packs need several kernels per layer (a compiled graph
            would fix their number), or the model has no layers of the usual kind.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    from xalign_models.backbones.borrowed import compile_calls, is_compiled
    from xalign_models.backbones.packing import find_kernel

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    waiting = [layer for layer in layers if not is_compiled(layer)]
    if layers and not waiting:
        return
    require(str(model.device))
    if not layers or find_kernel(model) is None:
        raise ModelError(
            f"--backend compiled does not support a {type(model).__name__} in {model.dtype}; leave it out."
        )
    compile_calls(waiting, dynamic=True, backend=COMPILER)
