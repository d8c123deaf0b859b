"""Linear layers that round float32 to TF32, on a GPU: 10 bits of the 23 behind the binary point, sums in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xalign_models.errors import ModelError


def require(device: str) -> None:
    """Refuse a device that has no products in TF32.

    Raises:
        ModelError: It has none.
    """
    import torch

    if not (device.startswith("cuda") and torch.cuda.is_tf32_supported()):
        raise ModelError(
            f"--precision tf32 needs a GPU with TF32 (NVIDIA's from compute capability 8.0 on), and {device} has none; "
            "leave it out, or use --precision int8 on a CPU."
        )


@contextmanager
def products(device: str) -> Iterator[None]:
    """Let torch's float32 products on GPUs round to TF32 until the end; then they are as they were before.

    The switch is the process's: products that other threads begin meanwhile round, too. Attention keeps float32.

    Raises:
        ModelError: The device has no such products.
    """
    import torch

    require(device)
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.allow_tf32 = True  # sets both of torch's switches, which have to agree: the compiler reads this one
    try:
        yield
    finally:
        matmul.allow_tf32 = before == "tf32"
        matmul.fp32_precision = before
