"""Products of float32 matrices by oneDNN, on a CPU.

On AMD's processors, the BLAS of numpy and torch takes twice the time for the same results up to rounding.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from xalign_models.linalg.borrowed import linear_pointwise

logger = logging.getLogger(__name__)

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
PAIRS, SLOWER = 15, 1.2
"""Number of timings in :func:`is_slow`, and the ratio of times above which half precision is slow."""


def product() -> Product | None:
    """A function for ``x w^T + b`` of float32 ``x`` (..., d), ``w`` (m, d) and ``b`` (m,) or None, without a gradient.

    None if torch lacks oneDNN or may round float32 products.
    """
    return _product() if torch.get_float32_matmul_precision() == "highest" else None


@cache
def _product() -> Product | None:
    """The product, after a trial; None if it fails."""
    eye = torch.eye(16)
    try:
        outcome = linear_pointwise(torch.stack([eye, 2 * eye]), eye, eye[0])
    except (AttributeError, RuntimeError, TypeError):  # a torch without the operation, or with other arguments
        return None
    return linear_pointwise if torch.equal(outcome, torch.stack([eye, 2 * eye]) + eye[0]) else None


@cache
def is_slow(dtype: str, consequence: str = "") -> bool:
    """Whether this processor, without instructions for it, multiplies in half precision more slowly than in float32.

    The median ratio of alternating timings decides, once per process. Ratios are near 0.5 or above 1.4, so that
    :data:`SLOWER` gives the same answer on a busy processor. A warning says so, once per consequence.

    Args:
        dtype: ``bfloat16`` or ``float16``.
        consequence: Sentence that tells the user what follows from it.
    """
    ratio = _ratio(dtype)
    if ratio > SLOWER:
        logger.warning("This processor takes %.1f times as long for %s as for float32. %s", ratio, dtype, consequence)
    return ratio > SLOWER


@cache
def _ratio(dtype: str) -> float:
    """Time of a product in half precision divided by its time in float32."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, 512, generator=generator) for rows in (256, 1024))
    half = getattr(torch, dtype)
    ways = ((linear, x.to(half), weight.to(half)), (product() or linear, x, weight))
    times = [[product_seconds(*way) for way in ways] for _ in range(PAIRS + 1)][1:]  # the first run warms up
    return median(slow / fast for slow, fast in times)


@torch.inference_mode()
def product_seconds(multiply: Callable[..., Tensor], x: Tensor, weight: Tensor) -> float:
    """Processor time of a product."""
    start = time.process_time()
    multiply(x, weight, None)
    return max(time.process_time() - start, 1e-6)


class _Layer(torch.autograd.Function):
    """A linear layer whose gradients are computed by the same product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, multiply: Product) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.multiply = multiply
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        return (
            ctx.multiply(grad, weight.T, None) if of_x else None,
            ctx.multiply(rows.T, x.reshape(-1, x.shape[-1]).T, None) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
            None,
        )


class Linear(TorchFunctionMode):
    """A context in which float32 linear layers on a CPU, and their gradients, use :func:`product`.

    It affects only the thread that enters it, so it must not be combined with the recomputation of activations.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, or oneDNN in its place."""
        if func is linear and not kwargs and not torch.is_autocast_enabled("cpu") and (multiply := product()):
            x, weight, bias = (*args, None)[:3]
            if x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu":
                if torch.is_grad_enabled():
                    return _Layer.apply(x, weight, bias, multiply)  # type: ignore[no-untyped-call]
                return multiply(x, weight, bias)
        return func(*args, **(kwargs or {}))
