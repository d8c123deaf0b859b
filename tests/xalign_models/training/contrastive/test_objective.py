"""Eq. 1 against a version written out by hand, and LoRA on exactly the linear layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from xalign_models.errors import ModelError
from xalign_models.models.building import build
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.training import add_lora, contrastive_loss

KINDS = ("llama", "gemma", "bert")
TEXTS = ([f"w{i} w{2 * i} w7" for i in range(12)], [f"w{i + 40} " + "w3 " * (1 + 4 * (i % 3)) for i in range(12)])
"""Of several lengths, as training batches are."""


class Table(nn.Module):
    """Stands in for a model: the embedding of token i is row i."""

    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, features):
        return {"sentence_embedding": self.rows[features["input_ids"][:, 0]]}


def by_hand(anchors, positives, tau):
    """Eq. 1 term by term: no matrix, no log-sum-exp."""
    terms = []
    for i, anchor in enumerate(anchors):
        similarity = [anchor @ one / (anchor @ anchor).sqrt() / (one @ one).sqrt() for one in positives]
        terms.append(-torch.log((similarity[i] / tau).exp() / sum((one / tau).exp() for one in similarity)))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_loss_and_gradient_are_those_of_equation_1(tau):
    rows = torch.randn(14, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model, reference = Table(rows.clone()), rows.clone().requires_grad_()
    columns = [{"input_ids": torch.arange(7)[:, None]}, {"input_ids": torch.arange(7, 14)[:, None]}]
    found = contrastive_loss(model, ContrastiveConfig(tau=tau))(columns, None)
    expected = by_hand(reference[:7], reference[7:], tau)
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.rows.grad, reference.grad, rtol=0, atol=1e-9)


def test_loss_of_vectors_worked_out_by_hand():
    """Anchors e1, e2; positives e1, e1: cosines ((1, 1), (0, 0)), so each term is log 2."""
    model = Table(torch.tensor([[1.0, 0], [0, 3], [2, 0], [5, 0]]))
    columns = [{"input_ids": torch.tensor([[0], [1]])}, {"input_ids": torch.tensor([[2], [3]])}]
    assert contrastive_loss(model, ContrastiveConfig())(columns, None).item() == pytest.approx(math.log(2))


@pytest.fixture
def prepared(workdir, spec):
    """A tiny model in training mode with LoRA, and its tokenised texts."""

    def make(kind, **fields):
        model = build(spec(kind), device="cpu")
        add_lora(model, ContrastiveConfig(**{"rank": 4, "batch_size": 4, "dropout": 0.0, **fields}))
        for name, one in model.named_parameters():  # off zero, where the gradient of the first matrix vanishes
            if "lora_B" in name:
                nn.init.normal_(one, std=0.1, generator=torch.Generator().manual_seed(1))
        prompt = model.prompts.get("default")
        for module in model.modules():  # dropout other than LoRA's, as BERT has it
            if isinstance(module, nn.Dropout) and not fields.get("dropout"):
                module.p = 0.0
        return model.train(), lambda: [model.preprocess(side, prompt=prompt) for side in TEXTS]

    return make


def gradients(model):
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_cached_equals_one_large_batch(prepared, kind):
    found = {}
    for cached in (False, True):
        model, features = prepared(kind)
        loss = contrastive_loss(model, ContrastiveConfig(batch_size=4, cached=cached))(features(), None)
        loss.backward()
        found[cached] = loss.item(), gradients(model)
    assert found[True][0] == pytest.approx(found[False][0], abs=1e-5)
    assert found[True][1].keys() == found[False][1].keys() != set()
    for name, expected in found[False][1].items():
        torch.testing.assert_close(found[True][1][name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_cached_passes_see_the_same_dropout(prepared, kind):
    """The second pass must give the vectors that the cached gradients belong to."""
    model, features = prepared(kind, dropout=0.5)
    seen = []
    model.register_forward_hook(lambda *args: seen.append(args[-1]["sentence_embedding"].detach()))
    contrastive_loss(model, ContrastiveConfig(batch_size=4, cached=True))(features(), None).backward()
    first, second = torch.cat(seen[: len(seen) // 2]), torch.cat(seen[len(seen) // 2 :])
    assert len(first) == 2 * len(TEXTS[0])
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_lora_is_on_every_linear_layer_and_nothing_else_is_trained(workdir, spec, kind):
    model = build(spec(kind), device="cpu")
    linear = {name for name, one in model.transformers_model.named_modules() if isinstance(one, nn.Linear)}
    linear.discard("pooler.dense")  # BERT's, of which nothing comes here
    per_layer = {"llama": 7, "gemma": 7, "bert": 6}[kind]  # q k v o gate up down; q k v o in out
    assert len(linear) == 2 * per_layer
    add_lora(model, ContrastiveConfig(rank=3))
    adapted = {
        name: module.lora_A["default"].weight.shape
        for name, module in model.transformers_model.named_modules()
        if hasattr(module, "lora_A")
    }
    assert adapted.keys() == linear
    assert {shape[0] for shape in adapted.values()} == {3}
    trained = [name for name, one in model.named_parameters() if one.requires_grad]
    assert len(trained) == 2 * len(linear)
    assert all("lora_A" in name or "lora_B" in name for name in trained)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_untrained_lora_changes_no_vector_and_is_float32(workdir, spec, kind, dtype):
    model = build(spec(kind, dtype=dtype), device="cpu")
    before = model.encode(TEXTS[0])
    add_lora(model, ContrastiveConfig(rank=4))
    assert {one.dtype for one in model.parameters() if one.requires_grad} == {torch.float32}
    np.testing.assert_array_equal(model.eval().encode(TEXTS[0]), before)


def test_lora_depends_on_its_seed_alone(workdir, spec):
    found = []
    for seed in (0, 0, 1):
        model = build(spec("llama"), device="cpu")
        state = torch.get_rng_state()
        add_lora(model, ContrastiveConfig(rank=4, seed=seed))
        assert torch.equal(torch.get_rng_state(), state)
        found.append(torch.cat([one.flatten() for name, one in model.named_parameters() if "lora_A" in name]))
        torch.rand(1)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_what_is_no_transformer_is_refused():
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import BoW

    with pytest.raises(ModelError, match="only transformers"):
        add_lora(SentenceTransformer(modules=[BoW(["w1"])], device="cpu"), ContrastiveConfig())
