"""A step of contrastive training: forward, loss and backward of a batch of pairs of mixed lengths, LoRA on all layers.

The alternative is sentence-transformers' own first module, which pads each side of a batch to its longest text.
"""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from benchmarks import shapes
from benchmarks.devices import every_device, linear_weights, model_flops, synchronise
from benchmarks.shapes import SMALL, backbone
from benchmarks.training import Step, lengths_of, pairs_of_texts, remove_dropout
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.training import add_lora, contrastive_loss

CONFIG = ContrastiveConfig(dropout=0.0)  # so that both sides compute the same


def contrastive_step(first: torch.nn.Module, device: str, cached: bool) -> tuple[Step, int, int]:
    """A model with LoRA in front of one batch of 32 pairs, and the tokens and FLOPs of a step.

    FLOPs are of the forward pass, and as much again for the gradient of the activations. Frozen weights need no
    gradient, and that of LoRA's few weights is left out. The cached loss encodes once more.
    """
    weights = linear_weights(first.model)  # before LoRA is added
    pooling = Pooling(first.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[first, pooling, Normalize()], device=device)
    add_lora(model, CONFIG)
    remove_dropout(model)
    model.to(device)
    loss = contrastive_loss(model, ContrastiveConfig(dropout=0.0, batch_size=8, cached=cached))
    batch = pairs_of_texts(model, CONFIG.batch_size, device)
    lengths = lengths_of(batch)
    flops = (3 if cached else 2) * model_flops(lengths, first, weights)
    return Step(model, lambda: loss([dict(side) for side in batch], None)), sum(lengths), flops


@pytest.mark.parametrize("cached", [False, True], ids=["in batch", "cached"])
@pytest.mark.parametrize("shape", SMALL)
@every_device
def test_step(device, compare, report, tmp_path, shape, cached):
    ours, tokens, flops = contrastive_step(backbone(SMALL[shape], tmp_path)[0], device, cached)
    theirs, *_ = contrastive_step(Transformer(str(tmp_path)), device, cached)
    pair = compare(ours, theirs, "sentence-transformers' module", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4)
    largest = float(theirs.gradient().abs().max())
    torch.testing.assert_close(ours.gradient() / largest, theirs.gradient() / largest, rtol=0, atol=1e-4)
    report(device, pair.seconds, tokens, flops, pairs=CONFIG.batch_size, model=shape)


@pytest.mark.gpu
@pytest.mark.parametrize("cached", [False, True], ids=["in batch", "cached"])
@pytest.mark.parametrize("name", ["XLM-R-base", "XLM-R-large", "Qwen3-Embedding-0.6B", "LLaMA-2-7B"])
def test_step_of_a_shape(cuda, clocked, report, profile, tmp_path, name, cached):
    """Published shapes in bfloat16 with random weights, and LoRA in float32."""
    first = shapes.build(shapes.SHAPES[name], tmp_path, cuda, torch.bfloat16)[0]
    step, tokens, flops = contrastive_step(first, cuda, cached)
    torch.cuda.reset_peak_memory_stats()

    def timed() -> float:
        loss = step()
        synchronise(cuda)
        return loss

    loss, seconds = clocked(timed, rounds=5, warmup_rounds=2)
    assert np.isfinite(loss)
    profile(timed)
    about = {"dtype": torch.bfloat16, "model": f"{name}, random weights"}
    memory = torch.cuda.max_memory_allocated()
    report(cuda, seconds, tokens, flops, pairs=CONFIG.batch_size, peak_bytes=memory, **about)
