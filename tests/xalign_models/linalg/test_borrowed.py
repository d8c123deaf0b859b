"""The private names of torch are there."""

from __future__ import annotations

import pytest
import torch

from xalign_models.linalg.borrowed import linear_pointwise


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_torch_has_onednns_linear_layer():
    assert hasattr(torch.ops.mkldnn, "_linear_pointwise"), "torch.ops.mkldnn._linear_pointwise is missing"
    x, weight, bias = torch.arange(6.0).reshape(2, 3), torch.ones(4, 3), torch.arange(4.0)
    assert torch.equal(linear_pointwise(x, weight, bias), x.sum(dim=1, keepdim=True) + bias)
