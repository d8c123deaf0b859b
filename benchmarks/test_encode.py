"""Encoding texts of mixed lengths: packed under a token budget, against sentence-transformers' own encode.

Shapes have random weights and are labelled so. The embedded model is used where it is installed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sklearn.metrics.pairwise import paired_cosine_distances
from torch import nn
from torch._dynamo.utils import counters

from benchmarks import shapes
from benchmarks.corpus import embedded_model, interface_texts, real_texts
from benchmarks.devices import every_device, model_flops
from benchmarks.shapes import SMALL, backbone, mixed_texts
from xalign_models.backbones import pipeline
from xalign_models.backbones.raw import RawEncoder

E5 = "multilingual-e5-small-q4"
ROUNDING = 0.01
"""Most that bfloat16 may add to a cosine distance: 0.004 in Mistral's width and depth; one foreign token adds 0.2."""


@pytest.fixture
def against_plain(device, encode, note):
    """Times our encoder and sentence-transformers' on the same modules, checks that they agree, and counts."""

    def run(modules: Sequence[nn.Module], texts: list[str], model: str, prompt: str = "") -> None:
        modules = [module.to(device).eval() for module in modules]
        plain = SentenceTransformer(modules=modules, device=device)

        def theirs() -> np.ndarray:
            return plain.encode(texts, prompt=prompt or None, show_progress_bar=False)

        counts, lengths = encode(modules, texts, prompt, theirs, "sentence-transformers", model=model)
        ours = counted(modules[0], lambda: RawEncoder("", lambda: modules, device).encode(texts, prompt))
        assert counts.encoded == len(lengths)
        assert ours == (counts.batches, counts.real_tokens, counts.computed_tokens)
        assert counts.real_tokens == counts.computed_tokens == sum(lengths)
        batches, real, computed = counted(modules[0], theirs)
        note(batches=counts.batches, their_batches=batches, their_useful_share=real / computed)

    return run


def counted(first: nn.Module, encode: Callable[[], Any]) -> tuple[int, int, int]:
    """Batches, real tokens and computed tokens that go through a first module in one run, which is not timed."""
    seen = []

    def count(_: nn.Module, arguments: tuple) -> None:
        features = arguments[0]
        packed = "cu_seq_lens_k" in features
        real = features["cu_seq_lens_k"][-1] if packed else features["attention_mask"].sum()
        seen.append((int(real), features["input_ids"].numel()))

    handle = first.register_forward_pre_hook(count)
    encode()
    handle.remove()
    return len(seen), *(sum(column) for column in zip(*seen, strict=True))


@pytest.mark.parametrize("shape", SMALL)
@every_device
def test_mixed_lengths(against_plain, tmp_path, shape):
    against_plain(backbone(SMALL[shape], tmp_path), mixed_texts(256), shape)


@every_device
def test_repeated_texts(against_plain, tmp_path):
    """Texts that occur three times, as in pools and pairs, are encoded once."""
    shape = "MiniLM-L3, random weights"
    texts = np.random.default_rng(0).permutation([text for text in mixed_texts(96) for _ in range(3)])
    against_plain(backbone(SMALL[shape], tmp_path), texts.tolist(), shape)


@pytest.mark.quick
@every_device
def test_embedded_model(device, against_plain):
    """The real multilingual-e5-small-q4 on interface strings in twelve languages."""
    against_plain(embedded_model(E5, device), interface_texts(), E5, "query: ")


@pytest.mark.quick
@every_device
def test_real_corpus(device, against_plain, pytestconfig):
    """The real multilingual-e5-small-q4 on sentences, news and paragraphs in ten languages."""
    against_plain(embedded_model(E5, device), real_texts(pytestconfig.getoption("--bench-texts")), E5, "query: ")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("length", "layers"), [(128, "eager"), (512, "eager"), ("mixed", "eager"), ("mixed", "compiled")]
)
@pytest.mark.parametrize("name", shapes.SHAPES)
def test_shape(cuda, clocked, report, profile, tmp_path, name, length, layers):
    """A published shape in bfloat16: the device alone, the tokenizer alone, and both together."""
    shape = shapes.SHAPES[name]
    modules = shapes.build(shape, tmp_path, cuda, torch.bfloat16)
    first = modules[0]
    first.compiled = layers == "compiled"
    budget = pipeline.token_budget(first, cuda)
    mean = 96 if length == "mixed" else length
    n = 4 * budget // mean
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(64), 0.9, n), 8, 512).astype(int) if length == "mixed" else [length] * n
    texts = shapes.texts_of([max(1, n - 1 - (not shape.causal)) for n in lengths])  # without the special tokens
    raw = RawEncoder("", lambda: modules, cuda)

    start = time.perf_counter()
    made = list(pipeline.batches(first, texts, "", budget, cuda))
    tokenizing = time.perf_counter() - start

    def device() -> list[np.ndarray]:
        fetch = [raw.launch(batch.features) for batch in made]
        return [vectors() for vectors in fetch]

    graphs = counters["stats"]["unique_graphs"]
    torch.cuda.reset_peak_memory_stats()
    vectors, seconds = clocked(device, rounds=3, warmup_rounds=2)
    assert (counters["stats"]["unique_graphs"] > graphs) == first.compiled
    memory = torch.cuda.max_memory_allocated()
    alone = np.concatenate([raw.forward([texts[i]]) for i in made[-1].rows[:8]])
    cosines = paired_cosine_distances(vectors[-1][:8], alone)
    assert cosines.max() < ROUNDING
    tokens = sum(batch.real_tokens for batch in made)
    assert tokens == sum(batch.computed_tokens for batch in made) == sum(lengths)
    profile(device)
    start = time.perf_counter()
    raw.encode(texts)
    whole = time.perf_counter() - start
    report(
        cuda, seconds, tokens, model_flops([int(n) for n in lengths], first), dtype=torch.bfloat16,
        model=f"{name}, random weights", length=length, layers=layers, texts=n, useful_share=1.0,
        tokens_per_s_with_tokenizer=tokens / whole, tokenizer_tokens_per_s=tokens / tokenizing, peak_bytes=memory,
        cosine=1 - float(cosines.max()),
    )  # fmt: skip


def test_tokenizer(clocked, note, pytestconfig):
    """The host's work for the real multilingual-e5-small-q4: tokenise, sort and pack."""
    first = embedded_model(E5, "cpu")[0]
    texts = real_texts(pytestconfig.getoption("--bench-texts"))
    made, seconds = clocked(
        lambda: list(pipeline.batches(first, texts, "query: ", 2**26 // 384, "cpu")), rounds=3, warmup_rounds=1
    )
    note(tokens_per_s=sum(batch.real_tokens for batch in made) / seconds)
