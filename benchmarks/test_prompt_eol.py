"""PromptEOL encoding of texts of mixed lengths, against right-padded batches of 32 in the given order."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import shapes
from benchmarks.corpus import embedded_model, interface_texts
from benchmarks.devices import every_device
from benchmarks.roofline import model_flops
from benchmarks.shapes import VOCABULARY, mixed_texts
from xalign_models.backbones import packing, pipeline
from xalign_models.backbones.inputs import ENGLISH, prompted
from xalign_models.backbones.raw import RawEncoder

BATCH = 32
PROMPT = 'w1 w2 w3 " [TEXT] " w4 w5 w6 w7 : "'


def naive(model: nn.Module, tokenizer, texts: list[str], prompt: str) -> np.ndarray:
    """A straightforward loop over padded batches; the model has no head, so no logits are computed."""
    vectors = []
    for start in range(0, len(texts), BATCH):
        filled = [prompted(prompt, text) for text in texts[start : start + BATCH]]
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


def run(modules, device, texts, prompt, compare, report, model):
    """Time both sides, check that they agree, and count tokens."""
    first = modules[0]
    raw = RawEncoder("", lambda: modules, device)
    pair = compare(
        lambda: RawEncoder("", lambda: modules, device).encode(texts, prompt),
        lambda: naive(first.model, first.tokenizer, texts, prompt),
        "batches of 32 in the given order",
        3,
    )
    largest = np.abs(pair.theirs).max()
    exact = first.model.dtype == torch.float32
    np.testing.assert_allclose(pair.ours / largest, pair.theirs / largest, rtol=0, atol=1e-5 if exact else 0.05)
    raw.encode(texts, prompt)
    counts, lengths = raw.counts, pipeline.token_counts(first, texts, prompt)
    padded = sum(len(batch) * max(batch) for batch in (lengths[i : i + BATCH] for i in range(0, len(lengths), BATCH)))
    ours = counts.real_tokens / counts.computed_tokens  # above 1: the prompt's first tokens are computed once a batch
    report(
        device, pair.seconds, counts.real_tokens, model_flops(lengths, first), dtype=first.model.dtype, model=model,
        useful_share=ours, useful_share_naive=sum(lengths) / padded,
        peak_bytes=torch.cuda.max_memory_allocated() if device == "cuda" else None,
    )  # fmt: skip


@every_device
def test_mixed_lengths(device, random_lm, compare, report):
    run(random_lm, device, mixed_texts(256), PROMPT, compare, report, "SmolLM2 shape L3, random weights")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Qwen3-Embedding-0.6B", "Mistral-7B", "LLaMA-2-7B"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_shape(device, compare, report, tmp_path, name):
    """Published shapes in bfloat16 with random weights."""
    modules = shapes.build(shapes.SHAPES[name], tmp_path, device, torch.bfloat16)
    run(modules, device, mixed_texts(4096), PROMPT, compare, report, f"{name}, random weights")


@pytest.mark.parametrize("name", ["smollm2-135m-q4", "gemma-3-270m-q4"])
@every_device
def test_embedded_model(device, compare, report, name):
    """The real models on interface strings in twelve languages."""
    modules = embedded_model(name, device, f"{name}-en-prompts")
    run(modules, device, interface_texts(), ENGLISH, compare, report, name)


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
