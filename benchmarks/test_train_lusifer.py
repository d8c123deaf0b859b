"""A training step of LUSIFER: forward, loss and backward of texts of mixed lengths, in both stages.

Stage 1 is compared with transformers' own loss over padded batches, stage 2 with cached gradients, and bfloat16 with
float32. The paper's shape takes about 100 GB. Memory is that of the activations which wait for the backward pass.
"""

from dataclasses import dataclass
from typing import Any
from weakref import finalize

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from transformers import AutoModelForCausalLM

from benchmarks.devices import encode_flops, linear_weights
from benchmarks.shapes import SHAPES, SMALL, VOCABULARY, mixed_texts, write_checkpoint
from benchmarks.training import Step, lengths_of, pairs_of_texts, remove_dropout
from xalign_models.backbones.adapters import add_lora
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.training.lusifer.connector import join
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.stage_one import StageOne
from xalign_models.training.objective import contrastive_loss

N = len(VOCABULARY)
TRAINED = {
    "tiny": (
        "BERT-like L3 d384 + Llama-like L3 d384, random weights",
        SMALL["MiniLM-L3, random weights"].config(),
        SMALL["Llama-like L3, random weights"].config(vocab_size=32_000),
    ),
    "small": (
        "multilingual-e5-small-q4 + SmolLM2-135M, random weights",
        SHAPES["multilingual-e5-small-q4"].config(vocab_size=N),
        SHAPES["SmolLM2-135M"].config(),
    ),
    "paper": (
        "XLM-R-large + Mistral-7B, random weights",
        SHAPES["XLM-R-large"].config(vocab_size=N),
        SHAPES["Mistral-7B"].config(),
    ),
}
"""Names and configurations of an encoder and a language model."""
PAIRS = {"tiny": 16, "small": 128, "paper": 64}
"""Pairs of a step; cached gradients take a quarter of them at a time."""
ROOM = 100 * 2**30
"""Bytes that the paper's shape takes on a device in float32."""


@pytest.fixture(
    params=["tiny", *(pytest.param(shape, marks=pytest.mark.gpu) for shape in ("small", "paper"))],
    ids=["tiny-cpu", "small-cuda", "paper-cuda"],
)
def shape(request) -> str:
    """A name of :data:`TRAINED`."""
    if request.param != "tiny" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if request.param == "paper" and torch.cuda.mem_get_info()[1] < ROOM:
        pytest.skip("the paper's shape in float32 needs a device of 100 GB")
    return request.param


@pytest.fixture
def device(shape) -> str:
    """The device that trains the shape."""
    return "cpu" if shape == "tiny" else "cuda"


@pytest.fixture
def make(shape, device, tmp_path):
    """Builds a LUSIFER and its language model's head; the connector and LoRA in the named parts have gradients."""

    def build(*parts: str, dtype: torch.dtype = torch.float32) -> tuple[Lusifer, Any]:
        _, encoder, llm = TRAINED[shape]
        write_checkpoint(encoder, tmp_path)
        read = LanguageTransformer(str(tmp_path), model_kwargs={"torch_dtype": dtype})
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            writer = AutoModelForCausalLM.from_config(llm, dtype=dtype)
        lusifer = Lusifer(read, writer.base_model, {}).to(device).requires_grad_(False)
        writer.requires_grad_(False)
        lusifer.connector.requires_grad_(True)
        for part in parts:
            model = {"encoder": read.model, "llm": lusifer.llm}[part]
            add_lora(model, rank=16, alpha=32, dropout=0.0, seed=0)
        remove_dropout(lusifer)
        return lusifer, writer

    return build


class Waiting(torch.autograd.graph.saved_tensors_hooks):
    """Bytes of activations that wait for a backward pass: the current number and the peak."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(self._pack, lambda held: held.tensor)
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self.weights:
            if not self.held.get(key):
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
            self.held[key] = self.held.get(key, 0) + 1
        held = _Held(tensor)
        finalize(held, self._release, key, storage.nbytes())
        return held

    def _release(self, key: int, size: int) -> None:
        if key not in self.weights:
            self.held[key] -= 1
            self.now -= 0 if self.held[key] else size


@dataclass(eq=False)
class _Held:
    tensor: torch.Tensor


def memory_of(step: Step, device: str) -> dict[str, int]:
    """Peak bytes of activations that wait; on CUDA also the device's peak, weights included."""
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    waiting = Waiting(step.model)
    with waiting:
        step()
    most = {"activations": waiting.most}
    return most if device == "cpu" else {**most, "peak_memory": torch.cuda.max_memory_allocated()}


def sizes_of(model: nn.Module) -> tuple[int, int, int]:
    """The weights, layers and width of a transformer, for :func:`encode_flops`."""
    return linear_weights(model), model.config.num_hidden_layers, model.config.hidden_size


def flops_of(lusifer: Lusifer, lengths: list[int], passes: int, after: int | None = None) -> int:
    """FLOPs of some passes over texts: forward, and as much for the activations' gradient.

    Frozen weights need no gradient, and LoRA's own work is small. ``after`` replaces the FLOPs of the language model.
    """
    read = encode_flops(lengths, *sizes_of(lusifer.encoder.model))
    mapped = encode_flops(lengths, linear_weights(lusifer.connector), 0, 0)
    after = encode_flops([length + 1 for length in lengths], *sizes_of(lusifer.llm)) if after is None else after
    return passes * (read + mapped + after)


def stage_two(
    make, shape: str, device: str, dtype: torch.dtype, minis=(None,)
) -> tuple[Lusifer, list[Step], list[int]]:
    """A LUSIFER, a step of its second stage for each size of mini-batch, and the lengths of their texts."""
    lusifer, _ = make("encoder", "llm", dtype=dtype)
    model = SentenceTransformer(modules=[*modules_of(lusifer), Normalize()], device=device)
    columns = pairs_of_texts(model, PAIRS[shape], device)
    losses = [contrastive_loss(model, 0.05, mini) for mini in minis]
    steps = [Step(model, lambda loss=loss: loss(columns, None), dtype) for loss in losses]
    return lusifer, steps, lengths_of(columns)


@pytest.fixture
def report_step(report, shape, device):
    """Report a step's speed and memory; ``flops`` are counted once, also where a text is encoded twice."""

    def run(seconds: float, dtype: torch.dtype, tokens: int, flops: int, **memory: dict[str, int]) -> None:
        held = {f"{key}_{side}_bytes": value for side, bytes_of in memory.items() for key, value in bytes_of.items()}
        report(device, seconds, tokens, flops, pairs=PAIRS[shape], dtype=dtype, model=TRAINED[shape][0], **held)

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_stage_two_plain_and_cached(shape, device, compare, report_step, make, dtype):
    """Cached gradients encode twice and keep only one mini-batch's activations."""
    quarter = PAIRS[shape] // 4
    lusifer, (plain, cached), lengths = stage_two(make, shape, device, dtype, (None, quarter))
    pair = compare(plain, cached, f"cached gradients, {quarter} at a time", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4 if dtype == torch.float32 else 0.1)
    if dtype == torch.float32:
        plain()
        expected = plain.gradient()
        cached()
        torch.testing.assert_close(cached.gradient(), expected, rtol=1e-3, atol=float(1e-4 * expected.abs().max()))
    memory = {"plain": memory_of(plain, device), "cached": memory_of(cached, device)}
    assert memory["cached"]["activations"] < memory["plain"]["activations"] / 2
    report_step(pair.seconds, dtype, sum(lengths), flops_of(lusifer, lengths, 2), **memory)


def test_stage_two_in_bfloat16(shape, device, compare, report_step, make):
    """Trained weights stay in float32; products are in bfloat16 on one side and float32 on the other."""
    lusifer, (half,), lengths = stage_two(make, shape, device, torch.bfloat16)
    _, (single,), _ = stage_two(make, shape, device, torch.float32)
    pair = compare(half, single, "float32", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=0.3)
    flops = flops_of(lusifer, lengths, 2)
    report_step(pair.seconds, torch.bfloat16, sum(lengths), flops, both=memory_of(half, device))


@pytest.mark.quick
def test_stage_one(shape, device, compare, report_step, make):
    """Logits only for predicted tokens, against transformers' own labels and padding."""
    lusifer, writer = make("encoder")
    lusifer.tokenizer.mask_token = "w0"
    model = StageOne(lusifer, writer, lusifer.tokenizer, (2, 3), lusifer.encoder.max_seq_length).to(device)
    rows = PAIRS[shape]
    texts = mixed_texts(2 * rows)
    features = model.lusifer.preprocess(texts[::2])
    targets = model.lusifer.preprocess(texts[1::2])
    features |= {
        "reconstruct": torch.zeros(rows, dtype=torch.bool),
        "target_ids": targets["input_ids"],
        "target_mask": targets["attention_mask"],
    }
    features = {name: value.to(device) for name, value in features.items() if torch.is_tensor(value)}

    def padded() -> torch.Tensor:
        ids, mask = features["target_ids"], features["target_mask"].bool()
        embed = writer.get_input_embeddings()
        begin = (embed(torch.full((rows,), 2, device=device)), mask.new_ones(rows, 1))
        pieces = [begin, *lusifer.soft_tokens(features)]
        embeds, real = join([*pieces, (embed(ids[mask]), mask)])
        before = [(torch.full((int(real.sum()), 1), -100, device=device), real) for _, real in pieces]
        labels = torch.where(real, join([*before, (ids[mask][:, None], mask)])[0][..., 0], -100)
        return writer(inputs_embeds=embeds, attention_mask=real, labels=labels).loss

    ours, theirs = Step(model, lambda: model(features)["loss"]), Step(model, padded)
    pair = compare(ours, theirs, "transformers' loss on padded rows", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4)
    read, written = (features[mask].sum(dim=1).tolist() for mask in ("attention_mask", "target_mask"))
    llm = lusifer.llm.config
    whole = [source + target + 2 for source, target in zip(read, written, strict=True)]
    flops = flops_of(lusifer, read, 2, encode_flops(whole, *sizes_of(lusifer.llm), causal=True))
    flops += 4 * sum(written) * llm.hidden_size * llm.vocab_size  # the head, where it is needed
    memory = {"ours": memory_of(ours, device), "theirs": memory_of(theirs, device)}
    report_step(pair.seconds, torch.float32, sum(read) + sum(written), flops, **memory)
