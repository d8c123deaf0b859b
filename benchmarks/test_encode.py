"""Encoding texts of mixed lengths: packed under a token budget, against sentence-transformers' own encode.

Shapes have random weights and are labelled so. The embedded model is used where it is installed.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sklearn.metrics.pairwise import paired_cosine_distances
from torch import nn

from benchmarks import shapes
from benchmarks.corpus import embedded_model, interface_texts, real_texts
from benchmarks.devices import every_device
from benchmarks.roofline import model_flops
from benchmarks.shapes import SMALL, backbone, mixed_texts
from xalign_models.backbones import pipeline
from xalign_models.backbones.raw import RawEncoder

E5 = "multilingual-e5-small-q4"


@dataclass
class Meter:
    """Counts the batches and tokens that go through a backbone's first module."""

    batches: int = 0
    real_tokens: int = 0
    computed_tokens: int = 0

    def __call__(self, module: nn.Module, arguments: tuple) -> None:
        features = arguments[0]
        self.batches += 1
        self.computed_tokens += features["input_ids"].numel()
        packed = "cu_seq_lens_k" in features
        self.real_tokens += int(features["cu_seq_lens_k"][-1] if packed else features["attention_mask"].sum())

    @property
    def share(self) -> float:
        return self.real_tokens / self.computed_tokens


class Sides:
    """The same modules in our encoder and in sentence-transformers'."""

    def __init__(self, modules: Sequence[nn.Module], device: str, texts: list[str], prompt: str = "") -> None:
        self.modules = [module.to(device).eval() for module in modules]
        self.device, self.texts, self.prompt = device, texts, prompt
        self.model = SentenceTransformer(modules=self.modules, device=device)

    def raw(self) -> RawEncoder:
        return RawEncoder("", lambda: self.modules, self.device)

    def ours(self) -> np.ndarray:
        return self.raw().encode(self.texts, self.prompt)

    def theirs(self) -> np.ndarray:
        return self.model.encode(self.texts, prompt=self.prompt or None, show_progress_bar=False)

    def counted(self, encode) -> Meter:
        """Count one run, which is not timed."""
        meter = Meter()
        handle = self.modules[0].register_forward_pre_hook(meter)
        encode()
        handle.remove()
        return meter

    def compare(self, compare, report, model: str) -> None:
        """Time both sides, check that they agree, and count."""
        pair = compare(self.ours, self.theirs, "sentence-transformers", 3)
        largest = np.abs(pair.theirs).max()
        np.testing.assert_allclose(pair.ours / largest, pair.theirs / largest, rtol=0, atol=1e-5)
        raw = self.raw()
        ours = self.counted(lambda: raw.encode(self.texts, self.prompt))
        theirs = self.counted(self.theirs)
        distinct = list(dict.fromkeys(self.texts))
        lengths = pipeline.token_counts(self.modules[0], distinct, self.prompt)
        counts = raw.counts
        assert counts.encoded == len(distinct)
        assert asdict(ours) == {field: getattr(counts, field) for field in asdict(ours)}
        assert ours.real_tokens == ours.computed_tokens == sum(lengths)
        report(
            self.device, pair.seconds, ours.real_tokens, model_flops(lengths, self.modules[0]), model=model,
            ours=asdict(ours), theirs=asdict(theirs), useful_share=ours.share, theirs_useful_share=theirs.share,
        )  # fmt: skip


@pytest.mark.parametrize("shape", SMALL)
@every_device
def test_mixed_lengths(device, compare, report, tmp_path, shape):
    Sides(backbone(SMALL[shape], tmp_path), device, mixed_texts(256)).compare(compare, report, shape)


@every_device
def test_repeated_texts(device, compare, report, tmp_path):
    """Texts that occur three times, as in pools and pairs, are encoded once."""
    shape = "MiniLM-L3, random weights"
    texts = [text for text in mixed_texts(96) for _ in range(3)]
    order = np.random.default_rng(0).permutation(len(texts))
    sides = Sides(backbone(SMALL[shape], tmp_path), device, [texts[i] for i in order])
    sides.compare(compare, report, shape)


@pytest.mark.quick
@every_device
def test_embedded_model(device, compare, report):
    """The real multilingual-e5-small-q4 on interface strings in twelve languages."""
    sides = Sides(embedded_model(E5, device), device, interface_texts(), "query: ")
    sides.compare(compare, report, E5)


@pytest.mark.quick
@every_device
def test_real_corpus(device, compare, report, pytestconfig):
    """The real multilingual-e5-small-q4 on sentences, news and paragraphs in ten languages."""
    texts = real_texts(pytestconfig.getoption("--bench-texts"))
    sides = Sides(embedded_model(E5, device), device, texts, "query: ")
    sides.compare(compare, report, E5)


@pytest.mark.gpu
@pytest.mark.parametrize("layers", ["eager", "compiled"])
@pytest.mark.parametrize("length", [128, 256, 512, "mixed"])
@pytest.mark.parametrize("name", shapes.SHAPES)
def test_shape(cuda, benchmark, report, profile, tmp_path, name, length, layers):
    """A published shape in bfloat16: the device alone, the tokenizer alone, and both together."""
    shape = shapes.SHAPES[name]
    modules = shapes.build(shape, tmp_path, cuda, torch.bfloat16)
    first = modules[0]
    first.compiled = layers == "compiled"
    budget = pipeline.token_budget(first, cuda)
    mean = 96 if length == "mixed" else length
    n = 8 * budget // mean
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

    torch.cuda.reset_peak_memory_stats()
    vectors = benchmark.pedantic(device, rounds=3, warmup_rounds=2)
    memory = torch.cuda.max_memory_allocated()
    alone = np.concatenate([raw.forward([texts[i]]) for i in made[-1].rows[:8]])
    cosines = paired_cosine_distances(vectors[-1][:8], alone)
    assert cosines.max() < 0.001
    tokens = sum(batch.real_tokens for batch in made)
    assert tokens == sum(batch.computed_tokens for batch in made) == sum(lengths)
    profile(device)
    if benchmark.disabled:
        return
    seconds = benchmark.stats.stats.median
    start = time.perf_counter()
    raw.encode(texts)
    whole = time.perf_counter() - start
    report(
        cuda, seconds, tokens, model_flops([int(n) for n in lengths], first), dtype=torch.bfloat16,
        model=f"{name}, random weights", length=length, layers=layers, texts=n, useful_share=1.0,
        tokens_per_s_with_tokenizer=tokens / whole, tokenizer_tokens_per_s=tokens / tokenizing, peak_bytes=memory,
        cosine=1 - float(cosines.max()),
    )  # fmt: skip


def test_tokenizer(benchmark, note, pytestconfig):
    """The host's work for the real multilingual-e5-small-q4: tokenise, sort and pack."""
    first = embedded_model(E5, "cpu")[0]
    texts = real_texts(pytestconfig.getoption("--bench-texts"))
    made = benchmark.pedantic(
        lambda: list(pipeline.batches(first, texts, "query: ", 2**26 // 384, "cpu")), rounds=3, warmup_rounds=1
    )
    if not benchmark.disabled:
        note(tokens_per_s=sum(batch.real_tokens for batch in made) / benchmark.stats.stats.median)
