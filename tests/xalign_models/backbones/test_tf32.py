"""TF32: where it is switched on, that it is switched off again, who is refused, and what a model of it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xalign_models.backbones import tf32
from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.pipeline import can_pack
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import ModelError
from xalign_models.models.building import load, raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import BackboneSpec

MATMUL = torch.backends.cuda.matmul


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device has TF32; the switch changes nothing on a CPU."""
    monkeypatch.setattr(tf32, "require", lambda device: None)


@pytest.mark.parametrize("before", ["none", "ieee", "tf32"])
def test_the_switch_is_on_within_and_as_it_was_afterwards(everywhere: None, before: str) -> None:
    at_first = MATMUL.fp32_precision
    try:
        MATMUL.allow_tf32 = before == "tf32"
        MATMUL.fp32_precision = before
        with pytest.raises(KeyError), tf32.products("cuda"):
            assert (MATMUL.fp32_precision, MATMUL.allow_tf32) == ("tf32", True)
            raise KeyError
        assert (MATMUL.fp32_precision, MATMUL.allow_tf32) == (before, before == "tf32")
    finally:
        MATMUL.allow_tf32 = at_first == "tf32"
        MATMUL.fp32_precision = at_first


def test_a_model_switches_it_on_while_its_layers_are_computed(everywhere: None, tiny_model: Path) -> None:
    specs = [BackboneSpec("tiny", str(tiny_model), precision=one) for one in ("native", "tf32")]
    seen: list[list[bool]] = []
    texts = ["w1 w2 w3", "w4", "w5 w6"]
    vectors = []
    for spec in specs:
        modules = open_backbone(spec).modules("cpu")
        can_pack(modules[0])  # which is tried once, before, and without
        within: list[bool] = []
        for module in modules[0].model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(lambda *_, within=within: within.append(MATMUL.allow_tf32))
        vectors.append(RawEncoder("", lambda modules=modules: modules, "cpu").encode(texts))
        seen.append(within)
    assert len(seen[0]) == len(seen[1]) > 0
    assert not any(seen[0])
    assert all(seen[1])
    np.testing.assert_array_equal(*vectors)  # the switch is for GPUs
    assert not MATMUL.allow_tf32


def test_a_model_is_another_one_and_says_so(tiny_model: Path) -> None:
    plain, changed = (BackboneSpec("tiny", str(tiny_model), precision=one) for one in ("native", "tf32"))
    assert open_backbone(plain).fingerprint != open_backbone(changed).fingerprint
    assert find_spec(str(tiny_model), precision="tf32").backbone.name.endswith("-tf32")


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_device_without_it_is_refused_before_weights_are_read(device: str) -> None:
    spec = BackboneSpec("none", "no/such-model", precision="tf32")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=f"not {device}; leave it out") as refused:
        raw_encoder(spec, device)
    assert "\n" not in str(refused.value)


def test_an_old_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: False)
    with pytest.raises(ModelError, match="not cuda:1"):
        tf32.require("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: True)
    tf32.require("cuda:1")


def test_half_precision_has_none() -> None:
    with pytest.raises(ModelError, match="add --dtype float32"):
        BackboneSpec("a", "b", dtype="bfloat16", precision="tf32")  # type: ignore[arg-type]


def test_a_saved_model_keeps_it(everywhere: None, tiny_model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    model = load(str(tiny_model), device="cpu", precision="tf32")
    save(model, tmp_path / "saved")
    again = load(str(tmp_path / "saved"), device="cpu")
    assert again[0].tf32
    with pytest.raises(ModelError, match="--standalone"):
        save(model, tmp_path / "stock", standalone=True)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="not cpu"):
        again.encode(["w1 w2"])
    assert "tf32" not in load(str(tiny_model), device="cpu")[0].get_config_dict()  # other models' files stay
