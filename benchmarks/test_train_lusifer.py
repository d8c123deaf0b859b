"""A training step of LUSIFER: forward, loss and backward of texts of mixed lengths, in both stages.

Stage 1 against transformers' own loss over padded batches, stage 2 plain against cached gradients and float32 against
bfloat16. Throughput does not depend on the weights' values, so shapes are built from configurations with random weights
and labelled so: on CUDA the small model's and the paper's, which takes some 100 GB, on the CPU still smaller ones.
Memory is that of the activations which the backward pass waits for: counted, the same everywhere; on CUDA also the
device's peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from transformers import AutoModelForCausalLM, BertConfig, LlamaConfig, MistralConfig, XLMRobertaConfig

from benchmarks.roofline import encode_flops, linear_weights, peak_flops
from benchmarks.shapes import VOCABULARY, mixed_texts, write_checkpoint
from xalign_models.backbones.adapters import add_lora
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.training.losses import contrastive_loss
from xalign_models.training.lusifer.connector import join
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.stage_one import StageOne

N = len(VOCABULARY)
SHAPES = {
    "tiny": (
        "BERT-like L3 d384 + Llama-like L3 d384, random weights",
        BertConfig(vocab_size=N, hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536),
        LlamaConfig(vocab_size=32000, hidden_size=384, num_hidden_layers=3, num_attention_heads=6,
                    num_key_value_heads=2, intermediate_size=1024, pad_token_id=0, bos_token_id=2, eos_token_id=3),
    ),
    "small": (
        "multilingual-e5-small-q4 + SmolLM2-135M, random weights",
        BertConfig(vocab_size=N, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536),
        LlamaConfig(vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
                    num_key_value_heads=3, intermediate_size=1536, pad_token_id=0, bos_token_id=2, eos_token_id=3),
    ),
    "paper": (
        "XLM-R-large + Mistral-7B, random weights",
        XLMRobertaConfig(vocab_size=N, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                         intermediate_size=4096, max_position_embeddings=514, pad_token_id=0),
        MistralConfig(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                      num_key_value_heads=8, intermediate_size=14336, pad_token_id=0),
    ),
}  # fmt: skip
PAIRS = {"tiny": 16, "small": 128, "paper": 64}
"""Of a step; cached gradients are those of a quarter of them at a time."""
ROOM = 100 * 2**30
"""Bytes of an accelerator that the paper's shape takes in float32."""


@pytest.fixture(
    params=["tiny-cpu", *(pytest.param(f"{one}-cuda", marks=pytest.mark.gpu) for one in ("small", "paper"))]
)
def case(request) -> list[str]:
    """A shape and where it is trained."""
    shape, device = request.param.split("-")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if shape == "paper" and torch.cuda.mem_get_info()[1] < ROOM:
        pytest.skip("the paper's shape in float32 needs a device of 100 GB")
    return [shape, device]


@pytest.fixture
def shape(case) -> str:
    """Name of the models' shapes, of :data:`SHAPES`."""
    return case[0]


@pytest.fixture
def device(case) -> str:
    """Where it is trained."""
    return case[1]


@pytest.fixture
def make(shape, device, tmp_path):
    """A LUSIFER with its language model's head; connector and LoRA of the parts that are named have gradients."""

    def build(*parts: str, dtype: torch.dtype = torch.float32) -> tuple[Lusifer, Any]:
        _, encoder, llm = SHAPES[shape]
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
        for module in lusifer.modules():  # so that both sides compute the same
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return lusifer, writer

    return build


class Waiting:
    """Bytes of activations that a backward pass waits for: now, and at most."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def __enter__(self) -> Waiting:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda one: one.tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._hooks.__exit__(*details)

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self.weights:
            if not self.held.get(key):
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
            self.held[key] = self.held.get(key, 0) + 1
        return _Held(self, tensor, key)

    def release(self, key: int, size: int) -> None:
        if key not in self.weights:
            self.held[key] -= 1
            self.now -= 0 if self.held[key] else size


class _Held:
    def __init__(self, waiting: Waiting, tensor: torch.Tensor, key: int) -> None:
        self.waiting, self.tensor, self.key = waiting, tensor, key

    def __del__(self) -> None:
        self.waiting.release(self.key, self.tensor.untyped_storage().nbytes())


class Step:
    """What one step costs a model: calling it gives the loss."""

    def __init__(self, model: nn.Module, loss: Callable[[], torch.Tensor], dtype: torch.dtype, device: str) -> None:
        self.model, self.loss, self.device = model.train(), loss, device
        half = dtype == torch.bfloat16
        self.autocast = (lambda: torch.autocast(device, torch.bfloat16)) if half else nullcontext

    def __call__(self) -> float:
        self.model.zero_grad()
        with self.autocast():
            loss = self.loss()
        loss.backward()
        return float(loss.detach())

    def memory(self) -> dict[str, int]:
        """Bytes of activations that wait at most; on CUDA also the most that the device holds, weights and all."""
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with Waiting(self.model) as waiting:
            self()
        most = {"activations": waiting.most}
        return most if self.device == "cpu" else {**most, "peak_memory": torch.cuda.max_memory_allocated()}

    def gradient(self) -> torch.Tensor:
        return torch.cat([one.grad.flatten() for one in self.model.parameters() if one.grad is not None]).float().cpu()


def columns_of(model: SentenceTransformer, pairs: int, device: str) -> list[dict[str, Any]]:
    texts = mixed_texts(2 * pairs)
    return [
        {name: one.to(device) if torch.is_tensor(one) else one for name, one in model.preprocess(side).items()}
        for side in (texts[::2], texts[1::2])
    ]


def flops_of(lusifer: Lusifer, lengths: list[int], passes: int) -> int:
    """Forward, and as much for the gradient of activations; frozen weights need none, and LoRA's own work is small."""
    encoder, llm = lusifer.encoder.model.config, lusifer.llm.config
    read = encode_flops(lengths, linear_weights(lusifer.encoder), encoder.num_hidden_layers, encoder.hidden_size)
    mapped = encode_flops(lengths, linear_weights(lusifer.connector), 0, 0)
    after = [length + 1 for length in lengths]
    return passes * (
        read + mapped + encode_flops(after, linear_weights(lusifer.llm), llm.num_hidden_layers, llm.hidden_size)
    )


@pytest.fixture
def report(note, say, shape, device):
    """Note and say what a step achieves; ``flops`` are counted once, also where a text is encoded twice."""

    def go(seconds: float, dtype: torch.dtype, rows: int, tokens: int, flops: int, **memory: dict[str, int]) -> None:
        peak = peak_flops(device, dtype)
        held = {f"{key}_{side}": value for side, one in memory.items() for key, value in one.items()}
        note(model=SHAPES[shape][0], dtype=str(dtype), pairs_per_s=rows / seconds, flops=flops, peak=peak,
             tokens_per_s=tokens / seconds, mfu=flops / seconds / peak, **held)  # fmt: skip
        speed = (
            f"{rows / seconds:.1f} rows/s, {tokens / seconds:.0f} real tokens/s, {flops / seconds / peak:.1%} of peak; "
        )
        sizes = ", ".join(f"{key.replace('_', ' ')} {value / 2**20:.0f} MiB" for key, value in held.items())
        say(f"  {shape}: {'' if math.isnan(seconds) else speed}{sizes}")

    return go


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_stage_two_plain_and_cached(shape, device, compare, report, make, dtype):
    """Cached gradients encode twice and keep a mini-batch's activations."""
    lusifer, _ = make("encoder", "llm", dtype=dtype)
    model = SentenceTransformer(modules=[*modules_of(lusifer), Normalize()], device=device)
    pairs = PAIRS[shape]
    columns = columns_of(model, pairs, device)
    losses = [contrastive_loss(model, 0.05, mini) for mini in (None, pairs // 4)]
    plain, cached = (Step(model, lambda loss=loss: loss(columns, None), dtype, device) for loss in losses)
    label = f"LUSIFER {shape}, stage 2, {pairs} pairs, {str(dtype).removeprefix('torch.')}"
    pair = compare(label, plain, cached, f"cached gradients, {pairs // 4} at a time", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4 if dtype == torch.float32 else 0.1)
    if dtype == torch.float32:
        plain()
        expected = plain.gradient()
        cached()
        torch.testing.assert_close(cached.gradient(), expected, rtol=1e-3, atol=float(1e-4 * expected.abs().max()))
    lengths = [int(one) for side in columns for one in side["attention_mask"].sum(dim=1)]
    memory = {"plain": plain.memory(), "cached": cached.memory()}
    assert memory["cached"]["activations"] < memory["plain"]["activations"] / 2
    report(pair.seconds, dtype, pairs, sum(lengths), flops_of(lusifer, lengths, 2), **memory)


def test_stage_two_in_bfloat16(shape, device, compare, report, make):
    """What is trained stays float32; the products of both sides are in their type."""
    steps, pairs = [], PAIRS[shape]
    for dtype in (torch.bfloat16, torch.float32):
        lusifer, _ = make("encoder", "llm", dtype=dtype)
        model = SentenceTransformer(modules=[*modules_of(lusifer), Normalize()], device=device)
        columns = columns_of(model, pairs, device)
        loss = contrastive_loss(model, 0.05)
        steps.append(Step(model, lambda loss=loss, columns=columns: loss(columns, None), dtype, device))
    pair = compare(f"LUSIFER {shape}, stage 2, {pairs} pairs, bfloat16", *steps, "float32", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=0.3)
    lengths = [int(one) for side in columns for one in side["attention_mask"].sum(dim=1)]
    flops = flops_of(lusifer, lengths, 2)
    report(pair.seconds, torch.bfloat16, pairs, sum(lengths), flops, both=steps[0].memory())


@pytest.mark.quick
def test_stage_one(shape, device, compare, report, make):
    """Logits where a token is predicted and batches of similar length, against transformers' own labels and padding."""
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
    features = {name: one.to(device) for name, one in features.items() if torch.is_tensor(one)}

    def padded() -> torch.Tensor:
        ids, mask = features["target_ids"], features["target_mask"].bool()
        embed = writer.get_input_embeddings()
        begin = (embed(torch.full((rows,), 2, device=device)), mask.new_ones(rows, 1))
        pieces = [begin, *lusifer.soft_tokens(features)]
        embeds, real = join([*pieces, (embed(ids[mask]), mask)])
        before = [(torch.full((int(one.sum()), 1), -100, device=device), one) for _, one in pieces]
        labels = torch.where(real, join([*before, (ids[mask][:, None], mask)])[0][..., 0], -100)
        return writer(inputs_embeds=embeds, attention_mask=real, labels=labels).loss

    ours = Step(model, lambda: model(features)["loss"], torch.float32, device)
    theirs = Step(model, padded, torch.float32, device)
    pair = compare(f"LUSIFER {shape}, stage 1, {rows} rows", ours, theirs, "transformers' loss on padded rows", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4)
    read = [int(one) for one in features["attention_mask"].sum(dim=1)]
    written = [int(one) for one in features["target_mask"].sum(dim=1)]
    llm = lusifer.llm.config
    whole = [one + other + 2 for one, other in zip(read, written, strict=True)]
    flops = flops_of(lusifer, read, 2) - 2 * encode_flops(
        [one + 1 for one in read], linear_weights(lusifer.llm), llm.num_hidden_layers, llm.hidden_size
    )
    flops += 2 * encode_flops(whole, linear_weights(lusifer.llm), llm.num_hidden_layers, llm.hidden_size, causal=True)
    flops += 4 * sum(written) * llm.hidden_size * llm.vocab_size  # the head, where it is needed
    tokens = sum(read) + sum(written)
    report(pair.seconds, torch.float32, rows, tokens, flops, ours=ours.memory(), theirs=theirs.memory())
