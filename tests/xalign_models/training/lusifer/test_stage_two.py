"""Stage 2's gradients: cached ones equal plain ones, and both passes of the cached loss see the same model."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn

from xalign_models.backbones.adapters import add_lora, lora_matrices
from xalign_models.training.lusifer.module import modules_of
from xalign_models.training.objective import contrastive_loss

SIDES = (
    [f"w{i} w{2 * i} w7" for i in range(12)],
    [f"w{i + 40} " + "w3 " * (1 + 4 * (i % 3)) for i in range(12)],
    [f"w{i + 60} w{i} w{i + 1} w{i + 2}" for i in range(12)],
)
"""Queries, passages and a hard negative each, of several lengths."""


@pytest.fixture
def prepared(make_lusifer):
    """A model in training mode, everything that stage 2 trains with gradients, and its tokenised texts."""

    def make(family, dropout):
        lusifer = make_lusifer(family).requires_grad_(False)
        lusifer.connector.requires_grad_(True)
        for model in (lusifer.encoder.model, lusifer.llm):
            add_lora(model, rank=2, alpha=4, dropout=dropout, seed=0)
            for matrix in lora_matrices(model):  # off zero, where the gradient of the first matrix vanishes
                nn.init.normal_(matrix, std=0.1, generator=torch.Generator().manual_seed(1))
        for module in lusifer.modules():  # BERT's own
            if isinstance(module, nn.Dropout):
                module.p = dropout
        for layer in lusifer.encoder.model.encoder.layer:
            layer.attention.self.dropout.p = dropout
        model = SentenceTransformer(modules=[*modules_of(lusifer), Normalize()], device="cpu").train()
        return model, lambda: [model.preprocess(side) for side in SIDES]

    return make


@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen3", "gemma3_text"])
@pytest.mark.parametrize("mini", [5, 12])
def test_cached_equals_one_large_batch(prepared, family, mini):
    found = {}
    for size in (None, mini):
        model, features = prepared(family, 0.0)
        loss = contrastive_loss(model, 0.05, size)(features(), None)
        loss.backward()
        found[size] = loss.item(), {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    (loss, gradients), (cached_loss, cached) = found[None], found[mini]
    assert cached_loss == pytest.approx(loss, abs=1e-5)
    assert cached.keys() == gradients.keys() == {name for name, one in model.named_parameters() if one.requires_grad}
    for name, expected in gradients.items():
        torch.testing.assert_close(
            cached[name], expected, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text
        )


def test_cached_passes_see_the_same_dropout(prepared):
    model, features = prepared("llama", 0.5)
    seen = []
    model.register_forward_hook(lambda *args: seen.append(args[-1]["sentence_embedding"].detach()))
    contrastive_loss(model, 0.05, 5)(features(), None).backward()
    first, second = torch.cat(seen[: len(seen) // 2]), torch.cat(seen[len(seen) // 2 :])
    assert len(first) == 36
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)
