"""Linear layers in whole numbers: the formula, exact sums, and what a model of them keeps."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from xalign_models.backbones import int8
from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import ModelError
from xalign_models.models.building import load
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import BackboneSpec


def layer(width: int = 64, out: int = 48, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(width, out, bias).eval()


def converted(linear: nn.Linear) -> nn.Linear:
    changed = copy.deepcopy(linear)
    int8.to_int8(changed)
    return changed


def by_formula(linear: nn.Linear, x: np.ndarray) -> np.ndarray:
    """The equation of the module, in float64."""
    weight = linear.weight.detach().double().numpy()
    rows, columns = np.abs(x).max(1, keepdims=True) / 127, np.abs(weight).max(1, keepdims=True) / 127
    product = np.rint(x / rows) @ np.rint(weight / columns).T * rows * columns.T
    return product if linear.bias is None else product + linear.bias.detach().double().numpy()


@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_it_is_the_formula(bias):
    linear = layer(bias=bias)
    x = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 3, 9)[:, None]
    found = converted(linear)(x)
    wanted = by_formula(linear, x.double().numpy().reshape(18, 64)).reshape(2, 9, 48)
    # A code may round the other way in float32 where a quotient is halfway: by one of the 127 steps.
    np.testing.assert_allclose(
        found / x.abs().amax(-1, keepdim=True), wanted / x.abs().amax(-1, keepdim=True), atol=2e-3
    )
    assert torch.nn.functional.cosine_similarity(found, linear(x), dim=-1).min() > 0.999


@torch.inference_mode()
def test_a_row_does_not_depend_on_the_rows_beside_it():
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(2))
    changed = converted(layer())
    alone = torch.cat([changed(row[None]) for row in x])
    torch.testing.assert_close(changed(torch.cat([x, 100 * x]))[:7], alone, rtol=0, atol=1e-6)


@torch.inference_mode()
def test_a_row_of_zeros_gives_the_bias():
    linear = layer()
    torch.testing.assert_close(converted(linear)(torch.zeros(1, 64))[0], linear.bias)


def test_kernels_agree():
    """Sums are exact, so that a processor without the kernel gives the same vectors."""
    if not int8.has_kernel():
        pytest.skip("no kernel on this processor")
    codes = torch.randint(-127, 128, (48, 64), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    rows = torch.randint(1, 256, (5, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    ones = torch.ones(48)
    assert torch.equal(int8._by_onednn(codes, ones)(rows), int8._by_floats(codes, ones)(rows))


def test_training_sees_the_weights():
    linear = layer()
    x = torch.randn(3, 64)
    torch.testing.assert_close(converted(linear).train()(x), linear(x))


@torch.inference_mode()
def test_a_used_layer_can_be_pickled():
    changed, x = converted(layer()), torch.randn(3, 64)
    found = changed(x)
    torch.testing.assert_close(pickle.loads(pickle.dumps(changed))(x), found)


def test_other_types_are_refused():
    with pytest.raises(ModelError, match="--dtype float32"):
        int8.to_int8(layer().bfloat16())


def test_a_model_is_another_one(tiny_model):
    plain, changed = (BackboneSpec("tiny", str(tiny_model), precision=one) for one in ("native", "int8"))
    assert open_backbone(plain).fingerprint != open_backbone(changed).fingerprint
    assert "precision" not in plain.encoding_fields()  # revisions from before there was a choice stay
    texts = ["w1 w2 w3", "w4", "w5 w6"]
    vectors = [
        RawEncoder("", lambda spec=spec: open_backbone(spec).modules("cpu"), "cpu").encode(texts)
        for spec in (plain, changed)
    ]
    cosines = (vectors[0] * vectors[1]).sum(1) / np.prod([np.linalg.norm(one, axis=1) for one in vectors], axis=0)
    assert 0.99 < cosines.min() < 1 - 1e-7
    assert find_spec(str(tiny_model), precision="int8").backbone.name.endswith("-int8")


def test_a_saved_model_keeps_it(tiny_model, tmp_path):
    model = load(str(tiny_model), device="cpu", precision="int8")
    save(model, tmp_path / "saved")
    again = load(str(tmp_path / "saved"), device="cpu")
    assert any(isinstance(module, int8.Int8Linear) for module in again.modules())
    np.testing.assert_allclose(again.encode(["w1 w2"]), model.encode(["w1 w2"]), atol=1e-6)
    with pytest.raises(ModelError, match="--standalone"):
        save(model, tmp_path / "stock", standalone=True)
