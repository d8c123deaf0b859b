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

from benchmarks.roofline import encode_flops, linear_weights, peak_flops
from benchmarks.test_encode import SHAPES, backbone, mixed_texts
from xalign_models.contrastive import ContrastiveConfig
from xalign_models.contrastive.objective import add_lora, contrastive_loss

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
@pytest.mark.parametrize("shape", SHAPES)
def test_step(device, compare, note, say, tmp_path, shape, cached):
    first = backbone(SHAPES[shape], tmp_path)[0]
    ours, theirs = Step(first, device, cached), Step(Transformer(str(tmp_path)), device, cached)
    label = f"train {shape}, {CONFIG.batch_size} pairs, {'cached' if cached else 'in batch'}"
    pair = compare(label, ours, theirs, "sentence-transformers' module", 3)
    assert pair.ours == pytest.approx(pair.theirs, abs=1e-4)
    largest = float(theirs.gradient().abs().max())
    torch.testing.assert_close(ours.gradient() / largest, theirs.gradient() / largest, rtol=0, atol=1e-4)
    config = first.model.config
    # Forward, and as much again for the gradient of the activations; the frozen weights need none, and that of LoRA's
    # few weights is left out. The cached loss encodes once more.
    flops = (3 if cached else 2) * encode_flops(
        ours.lengths, linear_weights(first), config.num_hidden_layers, config.hidden_size,
        causal=config.model_type == "llama",
    )  # fmt: skip
    tokens, peak = sum(ours.lengths), peak_flops(device)
    note(
        model=shape, pairs_per_s=CONFIG.batch_size / pair.seconds, tokens_per_s=tokens / pair.seconds, flops=flops,
        peak=peak, fraction_of_roofline=flops / pair.seconds / peak,
    )  # fmt: skip
    if not np.isnan(pair.seconds):
        say(
            f"  {CONFIG.batch_size / pair.seconds:.1f} pairs/s, {tokens / pair.seconds:.0f} real tokens/s; "
            f"{flops / pair.seconds / peak:.0%} of the matmul peak"
        )
