"""What the shipped configurations train, on models of the real shapes that take no memory."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    XLMRobertaConfig,
)

from xalign_models.training.lusifer import build
from xalign_models.training.lusifer.config import load_config

# As the published checkpoints have them.
XLM_R_LARGE = XLMRobertaConfig(
    vocab_size=250002,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    max_position_embeddings=514,
    type_vocab_size=1,
)
MISTRAL_7B = MistralConfig(
    vocab_size=32000,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    sliding_window=4096,
)
E5_SMALL = BertConfig(
    vocab_size=250037, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536
)
SMOLLM2 = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    intermediate_size=1536,
    tie_word_embeddings=True,
)
GEMMA_3 = Gemma3TextConfig(
    vocab_size=262144,
    hidden_size=640,
    num_hidden_layers=18,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=256,
    intermediate_size=2048,
)
SHAPES = {
    "paper": (XLM_R_LARGE, MISTRAL_7B),
    "small": (E5_SMALL, SMOLLM2),
    "small,gemma": (E5_SMALL, GEMMA_3),
}
RANK = 16


def lora(*shapes):
    """Weights of LoRA's two matrices on linear layers of these (in, out) shapes."""
    return sum(RANK * (one + other) for one, other in shapes)


def expected(encoder, llm):
    """Worked out from the shapes: q k v o and two (encoder) or three (language model) layers in between."""
    d, f = encoder.hidden_size, encoder.intermediate_size
    t, g = llm.hidden_size, llm.intermediate_size
    q, k = (heads * llm.head_dim for heads in (llm.num_attention_heads, llm.num_key_value_heads))
    return {
        "encoder": encoder.num_hidden_layers * lora(*[(d, d)] * 4, (d, f), (f, d)),
        "connector": d * d + d + d * t + t + t,
        "llm": llm.num_hidden_layers * lora((t, q), (t, k), (t, k), (q, t), (t, g), (t, g), (g, t)),
    }


@pytest.fixture
def begin(monkeypatch, checkpoints, make_lusifer):
    """:func:`build.begin` with shapes instead of checkpoints."""

    def go(config, encoder, llm):
        def shaped(kind, shape):
            with torch.device("meta"):
                return kind.from_config(shape)

        def load_encoder(_):
            module = make_lusifer().encoder  # for its tokenizer
            module.model = shaped(AutoModel, encoder)
            return module

        monkeypatch.setattr(build, "base_of", lambda model, *_: {"model": model})
        monkeypatch.setattr(build, "load_encoder", load_encoder)
        monkeypatch.setattr(build, "load_bidirectional", lambda _: alone(make_lusifer, shaped(AutoModel, llm)))
        monkeypatch.setattr(build, "load_llm", lambda *_, **__: shaped(AutoModelForCausalLM, llm))
        return build.begin(config, "meta")[0]

    return go


def alone(make_lusifer, model):
    from xalign_models.training.lusifer.decoder import Bidirectional

    module = Bidirectional.adopt(make_lusifer().encoder)
    module.model = model
    return module


OVER = {
    "": {1: {"encoder", "connector"}, 2: {"encoder", "connector", "llm"}},
    "connector-only": {1: {"connector"}, 2: {"connector"}},
    "frozen-encoder": {1: {"connector"}, 2: {"connector", "llm"}},
    "alignment-only": {1: {"encoder", "connector"}},
    "finetuning-only": {2: {"encoder", "connector", "llm"}},
    "llm-alone": {2: {"llm"}},
    "encoder-alone": {2: {"encoder"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("over", OVER)
def test_exactly_these_weights_are_trained(begin, name, over):
    config = load_config([*name.split(","), over] if over else name.split(","))
    counts = expected(*SHAPES[name])
    assert dict(config.parameters) == counts
    if name == "paper":
        assert counts == {"encoder": 7_077_888, "connector": 5_252_096, "llm": 41_943_040}
    assert {number for number, stage in config.stages.items() if stage} == set(OVER[over])
    for number, parts in OVER[over].items():
        model = begin(config, *SHAPES[name])
        build.prepare(model, config, config.stage(number))
        found = {part: build.trainable(module) for part, module in build.parts_of(model).items()}
        assert {part: count for part, count in found.items() if count} == {part: counts[part] for part in parts}
        trained = {key for key, one in model.named_parameters() if one.requires_grad}
        assert all("lora_" in key or ".connector." in key for key in trained)


def test_another_number_of_weights_is_refused(begin):
    from xalign_models.errors import ModelError

    config = load_config(["small"])
    with pytest.raises(
        ModelError, match="encoder 1,327,104, connector 370,176, llm 4,884,480 weights, but would train"
    ):
        build.prepare(begin(config, E5_SMALL, MISTRAL_7B), config, config.stage(2))


def test_paper_model_has_its_size(begin):
    model = begin(load_config(["paper"]), XLM_R_LARGE, MISTRAL_7B)
    sizes = {name: sum(one.numel() for one in part.parameters()) for name, part in build.parts_of(model).items()}
    assert sizes == {"encoder": 559_890_432, "connector": 5_252_096, "llm": 7_110_660_096}
