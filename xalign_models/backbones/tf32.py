"""Products in TF32 on a GPU: inputs are rounded to 10 of 23 mantissa bits, and sums are in float32."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xalign_models.errors import ModelError


def require(device: str) -> None:
    """Refuse a device without products in TF32.

    Raises:
        ModelError: The device has no TF32.
    """
    if not (device.startswith("cuda") and torch.cuda.is_tf32_supported()):
        raise ModelError(
            f"--precision tf32 needs a GPU with TF32 (NVIDIA, compute capability 8.0 or higher), not {device}; leave "
            "it out, or use --precision int8 on a CPU."
        )


@contextmanager
def products(device: str) -> Iterator[None]:
    """Round torch's float32 products on GPUs to TF32.

    The switch applies to the whole process, including other threads in the meantime. Attention keeps float32.

    Raises:
        ModelError: The device has no TF32.
    """
    require(device)
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.allow_tf32 = True  # sets both of torch's switches, which must agree: the compiler reads this one
    try:
        yield
    finally:
        matmul.allow_tf32 = before == "tf32"
        matmul.fp32_precision = before
