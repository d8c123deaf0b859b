"""Linear layers in 8-bit integers on a CPU: weights are scaled by output channel, activations by token.

With weights W (m, d) and an input x (n, d), row by row,

    s_i = max_j |x_ij| / 127        w_k = max_j |W_kj| / 127
    y_ik = s_i w_k sum_j round(x_ij / s_i) round(W_kj / w_k) + b_k

so that a text's vector does not depend on other texts of its batch. Everything else stays in float32. The sums are
exact, so that all processors agree.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from xalign_models.errors import ModelError

_MOST = 127
_ZERO = 128
"""Code of 0 among activations, which the kernel reads as 0 to 255."""
_ROWS = 2_048
"""Number of rows that the layout of weights is optimised for; others work too."""

Product = Callable[[Tensor], Tensor]
"""Function from codes (n, d) to products (n, m) with a layer's weights (m, d), without the rows' scales."""


class Int8Linear(nn.Linear):
    """A linear layer that multiplies integers outside of training; its float weights are kept."""

    _product: Product | None
    _inputs: dict[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        """State for copying and pickling, without the layout for this processor."""
        self._inputs.clear()
        return {**self.__dict__, "_product": None}

    def forward(self, input: Tensor) -> Tensor:
        """``input`` (..., d) to (..., m), float32.

        Raises:
            ModelError: The input is not on a CPU.
        """
        if self.training:
            return super().forward(input)
        if input.device.type != "cpu":
            raise ModelError("--precision int8 is for CPUs; leave it out, or add --device cpu.")
        if self._product is None:
            weight = self.weight.detach()
            steps = weight.abs().amax(1).clamp_(min=1e-30) / _MOST
            whole = (weight / steps[:, None]).round().to(torch.int8)
            self._product = (_by_onednn if has_kernel() else _by_floats)(whole, steps)
        last = self._inputs.get("last")
        if last is None or last[0] is not input:  # queries, keys and values share one input
            last = self._inputs["last"] = (input, *quantised(input.detach().flatten(0, -2)))
        _, codes, scales = last
        out = self._product(codes)[: len(scales)].mul_(scales)  # in place: memory is slower than arithmetic here
        if self.bias is not None:
            out.add_(self.bias.detach())
        return out.view(*input.shape[:-1], -1)


def to_int8(model: nn.Module) -> None:
    """Make all linear layers of a model multiply integers, in place.

    Raises:
        ModelError: The model has no linear layers, or they are not float32.
    """
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    if not layers or any(layer.weight.dtype != torch.float32 for layer in layers):
        raise ModelError("--precision int8 needs the linear layers of a transformer in float32: add --dtype float32.")
    inputs: dict[str, Any] = {}
    for layer in layers:
        layer.__class__ = Int8Linear
        layer._product, layer._inputs = None, inputs  # type: ignore[assignment]


def quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, d) as integers around :data:`_ZERO`, uint8, and their scales (n, 1)."""
    scales = torch.maximum(rows.amax(1, keepdim=True), rows.amin(1, keepdim=True).neg_()).clamp_(min=1e-30).div_(_MOST)
    codes = (rows / scales).round_().to(torch.int8)
    codes = pad(codes, (0, 0, 0, -len(rows) % (256 if len(rows) > 256 else 16)))
    return codes.view(torch.uint8).bitwise_xor_(_ZERO), scales  # xor: -127..127 as 1..255, in one pass over bytes


@cache
def has_kernel() -> bool:
    """Whether torch sums 8-bit products exactly on this processor; it needs AVX512-VNNI or similar."""
    try:
        product = _by_onednn(torch.full((16, 64), _MOST, dtype=torch.int8), torch.ones(16))
        return torch.equal(product(torch.full((3, 64), 255, dtype=torch.uint8)), torch.full((3, 16), 64.0 * _MOST**2))
    except (AttributeError, RuntimeError, TypeError):  # a build or version without the operator
        return False


def _by_onednn(codes: Tensor, scales: Tensor) -> Product:
    packed = torch.ops.onednn.qlinear_prepack(codes, [_ROWS, codes.shape[1]])
    zeros = torch.zeros(len(codes), dtype=torch.int32)

    def multiply(rows: Tensor) -> Tensor:
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, _ZERO, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return out

    return multiply


def _by_floats(codes: Tensor, scales: Tensor) -> Product:
    """The same products in float32: slow, but exact for sums of some thousand terms."""
    floats = codes.float()

    def multiply(rows: Tensor) -> Tensor:
        return (rows.float() - _ZERO) @ floats.T * scales

    return multiply
