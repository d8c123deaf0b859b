"""PromptEOL encoding of texts of mixed lengths, against right-padded batches of 32 in the given order."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import shapes
from benchmarks.corpus import embedded_model, interface_texts
from benchmarks.devices import every_device
from benchmarks.shapes import VOCABULARY, mixed_texts
from xalign_models.backbones import packing
from xalign_models.backbones.inputs import ENGLISH, prompted
from xalign_models.backbones.raw import RawEncoder
from xalign_models.generation.journal import batched

BATCH = 32
PROMPT = 'w1 w2 w3 " [TEXT] " w4 w5 w6 w7 : "'


def naive(model: nn.Module, tokenizer, texts: list[str], prompt: str) -> np.ndarray:
    """A straightforward loop over padded batches; the model has no head, so no logits are computed."""
    vectors = []
    for batch in batched(texts, BATCH):
        filled = [prompted(prompt, text) for text in batch]
        inputs = tokenizer(filled, padding=True, padding_side="right", return_tensors="pt").to(model.device)
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
        last = inputs["attention_mask"].sum(dim=1) - 1
        vectors.append(states[torch.arange(len(filled)), last].float().cpu().numpy())
    return np.concatenate(vectors)


@pytest.fixture
def random_lm(device, tmp_path) -> list[nn.Module]:
    """Three layers of SmolLM2's shape with random weights."""
    smollm2, size = shapes.SHAPES["SmolLM2-135M"], len(VOCABULARY)
    return shapes.build(smollm2, tmp_path, device, torch.float32, num_hidden_layers=3, vocab_size=size)


@pytest.fixture
def against_naive(device, encode, note):
    """Times our encoder and a loop over padded batches, checks that they agree, and counts tokens."""

    def run(modules: list[nn.Module], texts: list[str], model: str, prompt: str = PROMPT) -> None:
        first = modules[0]
        against = "batches of 32 in the given order"
        _, lengths = encode(
            modules, texts, prompt, lambda: naive(first.model, first.tokenizer, texts, prompt), against, model=model
        )
        padded = sum(len(batch) * max(batch) for batch in batched(lengths, BATCH))
        note(useful_share_naive=sum(lengths) / padded)
        if device == "cuda":
            note(peak_bytes=torch.cuda.max_memory_allocated())

    return run


@every_device
def test_mixed_lengths(random_lm, against_naive):
    against_naive(random_lm, mixed_texts(256), "SmolLM2 shape L3, random weights")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Qwen3-Embedding-0.6B", "Mistral-7B", "LLaMA-2-7B"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_shape(device, against_naive, tmp_path, name):
    """Published shapes in bfloat16 with random weights."""
    modules = shapes.build(shapes.SHAPES[name], tmp_path, device, torch.bfloat16)
    against_naive(modules, mixed_texts(1024), f"{name}, random weights")


@pytest.mark.parametrize("name", ["smollm2-135m-q4", "gemma-3-270m-q4"])
@every_device
def test_embedded_model(device, against_naive, name):
    """The real models on interface strings in twelve languages."""
    against_naive(embedded_model(name, device, f"{name}-en-prompts"), interface_texts(), name, ENGLISH)


@pytest.mark.quick
@every_device
def test_shared_prefix(device, random_lm, compare, note, monkeypatch):
    """The template's first tokens, computed once per batch instead of once per text."""
    prompt = " ".join(f"w{i}" for i in range(12)) + " [TEXT] w4"
    raws = {least: RawEncoder("", lambda: random_lm, device) for least in (3, 10_000)}
    texts = mixed_texts(128)

    def encode(least: int) -> np.ndarray:
        monkeypatch.setattr(packing, "MIN_SHARED", least)
        return raws[least].encode(texts, prompt)

    pair = compare(lambda: encode(3), lambda: encode(10_000), "computing it every time", 3)
    np.testing.assert_allclose(pair.ours, pair.theirs, atol=1e-3 * np.abs(pair.theirs).max())
    shares = {least: raw.counts.computed_tokens / raw.counts.real_tokens for least, raw in raws.items()}
    note(computed_share=shares[3])
    assert shares[3] < shares[10_000] == 1
