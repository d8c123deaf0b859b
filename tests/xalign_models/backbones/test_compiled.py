"""Compiled layers: one graph for packs of any size, the same vectors, who is refused, what such a model is called."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import AutoModel, BertConfig

from xalign_models.backbones import compiled, packing
from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import ModelError
from xalign_models.models.building import load, raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import BackboneSpec

from .test_launches import LENGTHS, Forward, features_of


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device compiles layers, as far as a graph that torch itself runs."""
    monkeypatch.setattr(compiled, "require", lambda device: None)
    monkeypatch.setattr(compiled, "COMPILER", "eager")
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "kernel"), [(torch.float32, "efficient"), (torch.bfloat16, "flash")])
def test_a_kernel_makes_one_graph_of_layers_and_packs_of_all_sizes(
    everywhere: None, modules: list[Any], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, kernel: packing.Kernel
) -> None:
    monkeypatch.setattr(packing, "find_kernel", lambda model: kernel)
    Forward(modules, LENGTHS[0], 2, dtype, kernel)  # puts a model on the meta device
    modules[0].compiled = True
    with torch.inference_mode():
        for lengths in LENGTHS:
            modules[0](features_of(lengths, kernel))
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_vectors_are_the_same_and_layers_are_compiled_again_where_they_are_sent(
    everywhere: None, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @torch.inference_mode()
    def states(first: Any) -> torch.Tensor:
        found: torch.Tensor = first(first.preprocess(["w1 w2 w3", "w4", "w5 w6"]))["token_embeddings"]
        return found

    monkeypatch.setattr(packing, "find_kernel", lambda model: "flash")
    plain, changed = (
        open_backbone(BackboneSpec("tiny", str(tiny_model), backend=one)).modules("cpu")[0]
        for one in ("torch", "compiled")
    )
    wanted = states(plain)
    assert not counters["stats"]
    torch.testing.assert_close(states(changed), wanted, rtol=0, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1
    sent: Any = pickle.loads(pickle.dumps(changed))
    assert not any(layer._compiled_call_impl for layer in sent.model.encoder.layer)
    torch.testing.assert_close(states(sent), wanted, rtol=0, atol=1e-6)
    assert all(layer._compiled_call_impl for layer in sent.model.encoder.layer)


def test_a_model_is_another_one_and_says_so(tiny_model: Path) -> None:
    plain, changed = (BackboneSpec("tiny", str(tiny_model), backend=one) for one in ("torch", "compiled"))
    assert open_backbone(plain).fingerprint != open_backbone(changed).fingerprint
    assert find_spec(str(tiny_model), backend="compiled").backbone.name.endswith("-compiled")
    assert "backend" not in plain.encoding_fields()  # revisions from before there was a choice stay


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_device_without_cuda_is_refused_before_weights_are_read(device: str) -> None:
    with pytest.raises(ModelError, match=f"not {device}; leave it out") as refused:
        raw_encoder(BackboneSpec("none", "no/such-model", backend="compiled"), device)
    assert "\n" not in str(refused.value)


def test_without_the_compilers_package_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install triton"):
        compiled.require("cuda:1")
    monkeypatch.setattr(compiled, "find_spec", lambda name: name)
    compiled.require("cuda:1")


def test_a_model_whose_packs_have_no_kernel_is_refused(everywhere: None, modules: list[Any]) -> None:
    modules[0].compiled = True
    with pytest.raises(ModelError, match="does not support a BertModel in torch.float32; leave it out"):
        RawEncoder("", lambda: modules, "cpu").encode(["the cat"])


def test_a_saved_model_keeps_it(everywhere: None, tiny_model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    model = load(str(tiny_model), device="cpu", backend="compiled")
    save(model, tmp_path / "saved")
    assert load(str(tmp_path / "saved"), device="cpu")[0].compiled
    with pytest.raises(ModelError, match="--standalone"):
        save(model, tmp_path / "stock", standalone=True)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="CUDA, not cpu"):
        load(str(tmp_path / "saved"), device="cpu").encode(["w1 w2"])


@pytest.mark.slow
def test_models_of_one_process_are_compiled_apart(everywhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch runs the ninth compilation of a function uncompiled, and models of one family share their layers' code."""
    monkeypatch.setattr(packing, "find_kernel", lambda model: "flash")
    for heads in range(1, 11):
        config = BertConfig(vocab_size=40, hidden_size=8 * heads, num_hidden_layers=2, num_attention_heads=heads)
        with torch.device("meta"), torch.inference_mode():
            model = AutoModel.from_config(config, dtype=torch.bfloat16).eval()
            compiled.compile_layers(model)
            features = features_of(LENGTHS[1], "flash")
            del features["seq_idx"]
            with packing.packed_attention(model):
                model(**features)
        assert counters["stats"]["unique_graphs"] == heads
