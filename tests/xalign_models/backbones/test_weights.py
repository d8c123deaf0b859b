"""A checkpoint that does not fit its configuration is refused by the name of the weight."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.weights import require_fit
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Pooling

Weights = dict[str, torch.Tensor]
QUERY = "encoder.layer.1.attention.self.query.weight"


def without(weights: Weights) -> Weights:
    return {name: one for name, one in weights.items() if ".layer.1." not in name}


def more(weights: Weights) -> Weights:
    return {**weights, "encoder.layer.7.attention.self.query.weight": torch.zeros(16, 16)}


def reshaped(weights: Weights) -> Weights:
    return {**weights, QUERY: torch.zeros(16, 8)}


def renamed(weights: Weights) -> Weights:
    return {name.replace("query", "question"): one for name, one in weights.items()}


def prefixed(weights: Weights) -> Weights:
    return {f"model.teacher.{name}": one for name, one in weights.items()}


def whole_numbers(weights: Weights) -> Weights:
    return {**weights, QUERY: (100 * weights[QUERY]).to(torch.int8)}


@pytest.fixture
def model(tiny_model: Path, workdir: Path) -> Path:
    return Path(shutil.copytree(tiny_model, workdir / "model"))


def rewrite(folder: Path, change: Callable[[Weights], Weights]) -> None:
    weights = {name: one.clone() for name, one in load_file(folder / "model.safetensors").items()}
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without, r"lacks encoder\.layer\.1\..* and \d+ more"),
        (more, r"has encoder\.layer\.7\.attention\.self\.query\.weight, which the model lacks"),
        (reshaped, rf"{QUERY} has the shape \(16, 8\) instead of \(16, 16\)"),
        (renamed, r"lacks .*query.*; it has .*question"),
        (prefixed, r"lacks embeddings\..*; it has model\.teacher\."),
        (whole_numbers, rf"{QUERY} is of type I8"),
    ],
)
@pytest.mark.parametrize("pooling", [Pooling.PUBLISHED, Pooling.MEAN])
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(model, change, message, pooling):
    rewrite(model, change)
    with pytest.raises(ModelError, match=message):
        open_backbone(BackboneSpec("wrong", str(model), pooling=pooling)).modules("cpu")


def test_a_file_that_is_cut_off_is_refused_by_name(model):
    content = (model / "model.safetensors").read_bytes()
    for length in (4, 100, len(content) // 2, len(content) - 1):
        (model / "model.safetensors").write_bytes(content[:length])
        with pytest.raises(ModelError, match="model.safetensors"):
            open_backbone(BackboneSpec("cut", str(model))).modules("cpu")


def test_a_module_behind_the_transformer_is_checked_too(model):
    modules = json.loads((model / "modules.json").read_text())
    kind = "sentence_transformers.models.Dense"
    (model / "modules.json").write_text(
        json.dumps([*modules[:2], {"idx": 2, "name": "2", "path": "2_Dense", "type": kind}])
    )
    (model / "2_Dense").mkdir()
    config = {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.Tanh"}
    (model / "2_Dense" / "config.json").write_text(json.dumps(config))
    save_file({"linear.weight": torch.zeros(16, 16)}, model / "2_Dense" / "model.safetensors")
    with pytest.raises(Exception, match=r"linear\.bias") as caught:
        open_backbone(BackboneSpec("dense", str(model))).modules("cpu")
    assert "\n" not in str(caught.value)


def test_a_masked_language_model_without_a_pooler_is_an_encoder_as_it_is(workdir, make_bert):
    from transformers import BertConfig, BertForMaskedLM

    folder = make_bert(workdir / "mlm", ["w1", "w2"])
    BertForMaskedLM(BertConfig.from_pretrained(folder)).save_pretrained(folder)
    assert open_backbone(BackboneSpec("mlm", str(folder))).modules("cpu")


def test_a_cut_model_leaves_later_layers_and_nothing_else(model):
    assert open_backbone(BackboneSpec("cut", str(model), layer=0)).modules("cpu")
    rewrite(model, renamed)
    with pytest.raises(ModelError, match="question"):
        open_backbone(BackboneSpec("cut", str(model), layer=0)).modules("cpu")


@pytest.mark.parametrize("change", [without, renamed, reshaped])
def test_an_adapter_that_does_not_fit_is_refused_by_name(model, workdir, change):
    from peft import LoraConfig

    first = open_backbone(BackboneSpec("base", str(model))).modules("cpu")[0]
    first.model.add_adapter(LoraConfig(r=2, target_modules="all-linear"))
    folder = workdir / "adapter"
    first.save(str(folder))
    weights = {name: one.clone() for name, one in load_file(folder / "adapter_model.safetensors").items()}
    if change is reshaped:
        name = next(iter(weights))
        changed = {**weights, name: torch.zeros(3, 3)}
    else:
        changed = change(weights)
    save_file(changed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    kind = type(first)
    with pytest.raises(Exception, match=r"lora_|layer\.\d") as caught:
        kind.load(str(folder))
    assert isinstance(caught.value, ModelError)


def test_harmless_cases_are_listed_and_no_other_is():
    fine = {
        "missing_keys": {"pooler.dense.weight", "embeddings.position_ids"},
        "mismatched_keys": set(),
        "unexpected_keys": {"cls.predictions.bias", "lm_head.weight", "bert.pooler.dense.bias"},
    }
    require_fit(fine, "m")
    for key, name in (("missing_keys", "poolers.weight"), ("unexpected_keys", "encoder.lm_head2.weight")):
        with pytest.raises(ModelError, match=name.replace(".", r"\.")):
            require_fit({**fine, key: {name}}, "m")
