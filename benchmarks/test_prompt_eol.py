"""PromptEOL encoding of texts of mixed lengths, against batches of 32 as they come, right-padded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import shapes
from benchmarks.roofline import model_flops, peak_flops
from benchmarks.shapes import VOCABULARY, mixed_texts, write_checkpoint
from xalign_models.backbones import packing, pipeline
from xalign_models.backbones.prompt_eol import PromptEOL
from xalign_models.backbones.raw import RawEncoder
from xalign_models.backbones.templates import ENGLISH, prompted

BATCH = 32


def naive(model: nn.Module, tokenizer, texts: list[str], prompt: str) -> np.ndarray:
    """What one would write first; the model without its head, so that no logits are computed."""
    vectors = []
    for start in range(0, len(texts), BATCH):
        filled = [prompted(prompt, text) for text in texts[start : start + BATCH]]
        inputs = tokenizer(filled, padding=True, padding_side="right", return_tensors="pt").to(model.device)
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
        last = inputs["attention_mask"].sum(dim=1) - 1
        vectors.append(states[torch.arange(len(filled)), last].float().cpu().numpy())
    return np.concatenate(vectors)


def random_lm(directory: Path, device: str) -> list[nn.Module]:
    """Three layers of SmolLM2's shape with random weights, and last-token pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=576, num_hidden_layers=3, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    write_checkpoint(config, directory, end="")
    return [module.to(device).eval() for module in (PromptEOL(str(directory)), Pooling(576, "lasttoken"))]


def run(modules, device, texts, prompt, compare, note, say, label):
    first = modules[0]
    raw = RawEncoder("", lambda: modules, device)
    pair = compare(
        f"PromptEOL {label}, {len(texts)} texts",
        lambda: RawEncoder("", lambda: modules, device).encode(texts, prompt),
        lambda: naive(first.model, first.tokenizer, texts, prompt),
        "batches of 32 as they come",
        3,
    )
    largest = np.abs(pair.theirs).max()
    exact = first.model.dtype == torch.float32
    np.testing.assert_allclose(pair.ours / largest, pair.theirs / largest, rtol=0, atol=1e-5 if exact else 0.05)
    raw.encode(texts, prompt)
    counts, lengths = raw.counts, pipeline.token_counts(first, texts, prompt)
    share = sum(lengths) / sum(
        len(part) * max(part) for part in (lengths[i : i + BATCH] for i in range(0, len(lengths), BATCH))
    )
    ours = counts.real_tokens / counts.computed_tokens  # above 1: the prompt's first tokens are computed once a batch
    flops, peak = model_flops(lengths, first), peak_flops(device, first.model.dtype)
    note(
        model=label,
        dtype=str(first.model.dtype).removeprefix("torch."),
        useful_share=ours,
        useful_share_naive=share,
        tokens_per_s=counts.real_tokens / pair.seconds,
        fraction_of_roofline=flops / pair.seconds / peak,
        flops=flops,
        peak=peak,
        peak_bytes=torch.cuda.max_memory_allocated() if device == "cuda" else None,
    )
    say(
        f"  {counts.real_tokens} tokens, useful share {ours:.3f}, naive {share:.3f}"
        + ("" if np.isnan(pair.seconds) else f"; {counts.real_tokens / pair.seconds:.0f} real tokens/s")
    )


def test_mixed_lengths(device, compare, note, say, tmp_path):
    modules = random_lm(tmp_path, device)
    prompt = 'w1 w2 w3 " [TEXT] " w4 w5 w6 w7 : "'
    run(modules, device, mixed_texts(256), prompt, compare, note, say, "SmolLM2 shape L3, random weights")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Qwen3-Embedding-0.6B", "Mistral-7B", "LLaMA-2-7B"])
def test_shape(device, compare, note, say, tmp_path, name):
    """Published shapes in bfloat16, random weights."""
    if device == "cpu":
        pytest.skip("takes a CUDA device")
    modules = shapes.build(shapes.SHAPES[name], tmp_path, device, torch.bfloat16)
    prompt = 'w1 w2 w3 " [TEXT] " w4 w5 w6 w7 : "'
    run(modules, device, mixed_texts(4096), prompt, compare, note, say, f"{name}, random weights")


@pytest.mark.parametrize("name", ["smollm2-135m-q4", "gemma-3-270m-q4"])
def test_embedded_model(device, compare, note, say, name):
    """The real models on interface strings in twelve languages."""
    try:
        from xalign_models import assets, corpora
        from xalign_models.backbones.loading import open_backbone
        from xalign_models.models.catalogue import BACKBONES
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    for asset in (name, "gettext"):
        if assets.where(asset) is None:
            pytest.skip(f"the asset is not installed; run: xalign assets install {asset}")
    columns = corpora.load("gettext:test")
    texts = list(dict.fromkeys(text for one in columns.languages for text in columns.texts(one)[:8]))
    modules = open_backbone(BACKBONES[f"{name}-en-prompts"]).modules(device)
    run(modules, device, texts, ENGLISH, compare, note, say, name)


@pytest.mark.quick
def test_shared_prefix(device, compare, note, say, tmp_path, monkeypatch):
    """The template's first tokens, computed once per batch and not once per text."""
    modules = random_lm(tmp_path, device)
    prompt = " ".join(f"w{i}" for i in range(12)) + " [TEXT] w4"
    raws = {least: RawEncoder("", lambda: modules, device) for least in (3, 10_000)}
    texts = mixed_texts(128)

    def encode(least: int) -> np.ndarray:
        monkeypatch.setattr(packing, "MIN_SHARED", least)
        return raws[least].encode(texts, prompt)

    pair = compare(
        "shared prefix of 13 tokens", lambda: encode(3), lambda: encode(10_000), "computing it every time", 3
    )
    np.testing.assert_allclose(pair.ours, pair.theirs, atol=1e-3 * np.abs(pair.theirs).max())
    shares = {least: raw.counts.computed_tokens / raw.counts.real_tokens for least, raw in raws.items()}
    note(computed_share=shares[3])
    say(f"  {shares[3]:.3f} of the tokens are computed")
    assert shares[3] < shares[10_000] == 1
