"""A step of contrastive training: forward, loss and backward of a batch of pairs of mixed lengths, LoRA on all layers.

Against sentence-transformers' own first module, which pads each side of a batch to its longest text. Throughput does
not depend on the weights' values, so shapes are built from their configurations with random weights and labelled so.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from benchmarks import shapes
from benchmarks.roofline import linear_weights, model_flops, peak_flops
from benchmarks.shapes import SMALL, backbone, mixed_texts
from xalign_models.training.contrastive import ContrastiveConfig
from xalign_models.training.contrastive.training import add_lora, contrastive_loss

CONFIG = ContrastiveConfig(dropout=0.0)  # so that both sides compute the same


class Step:
    """A model with LoRA, and what one batch of 32 pairs costs it."""

    def __init__(self, first: torch.nn.Module, device: str, cached: bool) -> None:
        pooling = Pooling(first.get_embedding_dimension(), pooling_mode="mean")
        self.model = SentenceTransformer(modules=[first, pooling, Normalize()], device=device)
        add_lora(self.model, CONFIG)
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.model.to(device).train()
        self.loss = contrastive_loss(self.model, ContrastiveConfig(dropout=0.0, batch_size=8, cached=cached))
        texts = mixed_texts(2 * CONFIG.batch_size)
        self.features = [self.model.preprocess(side) for side in (texts[::2], texts[1::2])]
        self.lengths = [int(one) for side in self.features for one in side["attention_mask"].sum(dim=1)]

    def __call__(self) -> float:
        self.model.zero_grad()
        columns = [
            {name: one.to(self.model.device) if torch.is_tensor(one) else one for name, one in side.items()}
            for side in self.features
        ]
        loss = self.loss(columns, None)
        loss.backward()
        return loss.item()

    def gradient(self) -> torch.Tensor:
        return torch.cat([one.grad.flatten() for one in self.model.parameters() if one.grad is not None]).cpu()


@pytest.mark.parametrize("cached", [False, True], ids=["in batch", "cached"])
@pytest.mark.parametrize("shape", SMALL)
def test_step(device, compare, note, say, tmp_path, shape, cached):
    first = backbone(SMALL[shape], tmp_path)[0]
    weights = linear_weights(first.model)  # before there is LoRA
    ours, theirs = Step(first, device, cached), Step(Transformer(str(tmp_path)), device, cached)
    label = f"train {shape}, {CONFIG.batch_size} pairs, {'cached' if cached else 'in batch'}"
    pair = compare(label, ours, theirs, "sentence-transformers' module", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4)
    largest = float(theirs.gradient().abs().max())
    torch.testing.assert_close(ours.gradient() / largest, theirs.gradient() / largest, rtol=0, atol=1e-4)
    # Forward, and as much again for the gradient of the activations; the frozen weights need none, and that of LoRA's
    # few weights is left out. The cached loss encodes once more.
    flops = (3 if cached else 2) * model_flops(ours.lengths, first, weights)
    tokens, peak = sum(ours.lengths), peak_flops(device)
    note(
        model=shape,
        pairs_per_s=CONFIG.batch_size / pair.seconds,
        tokens_per_s=tokens / pair.seconds,
        flops=flops,
        peak=peak,
        fraction_of_roofline=flops / pair.seconds / peak,
    )
    if not np.isnan(pair.seconds):
        say(
            f"  {CONFIG.batch_size / pair.seconds:.1f} pairs/s, {tokens / pair.seconds:.0f} real tokens/s; "
            f"{flops / pair.seconds / peak:.0%} of the matmul peak"
        )


@pytest.mark.gpu
@pytest.mark.parametrize("cached", [False, True], ids=["in batch", "cached"])
@pytest.mark.parametrize("name", ["XLM-R-base", "XLM-R-large", "Qwen3-Embedding-0.6B", "LLaMA-2-7B"])
def test_step_of_a_shape(cuda, benchmark, note, say, profile, tmp_path, name, cached):
    """Published shapes in bfloat16, random weights, LoRA in float32."""
    first = shapes.build(shapes.SHAPES[name], tmp_path, cuda, torch.bfloat16)[0]
    weights = linear_weights(first.model)  # before there is LoRA
    step = Step(first, cuda, cached)
    torch.cuda.reset_peak_memory_stats()

    def timed() -> float:
        loss = step()
        torch.cuda.synchronize()
        return loss

    assert np.isfinite(benchmark.pedantic(timed, rounds=5, warmup_rounds=2))
    profile(timed)
    if benchmark.disabled:
        return
    seconds = benchmark.stats.stats.median
    peak = peak_flops(cuda, torch.bfloat16)
    flops = (3 if cached else 2) * model_flops(step.lengths, first, weights)
    note(
        model=f"{name}, random weights",
        dtype="bfloat16",
        pairs_per_s=CONFIG.batch_size / seconds,
        flops=flops,
        peak=peak,
        tokens_per_s=sum(step.lengths) / seconds,
        fraction_of_roofline=flops / seconds / peak,
        peak_bytes=torch.cuda.max_memory_allocated(),
    )
    say(
        f"train {name}, random weights, {CONFIG.batch_size} pairs, {'cached' if cached else 'in batch'}: "
        f"{CONFIG.batch_size / seconds:.1f} pairs/s; {flops / seconds / peak:.0%} of the matmul peak"
    )
