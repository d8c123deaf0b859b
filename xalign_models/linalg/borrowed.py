"""Private names of torch that this room uses."""

import torch
from torch import Tensor


def linear_pointwise(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x w^T + b`` by oneDNN."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result
