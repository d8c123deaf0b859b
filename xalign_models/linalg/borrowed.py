"""Private names of torch that this room uses."""

import torch
from torch import Tensor


def linear_pointwise(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x w^T + b`` by oneDNN.

    torch's compiler calls this operation for linear layers. No public function reaches it without compilation.
    """
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result
