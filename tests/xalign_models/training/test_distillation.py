"""The loss of distillation by hand."""

from __future__ import annotations

import math

import pytest
import torch

from xalign_models.training import objective
from xalign_models.training.objective import DistillationLoss


class Given(torch.nn.Module):
    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}


def test_the_loss_by_hand():
    loss = DistillationLoss(Given(), tau=0.5)
    teacher = 3 * torch.eye(2)
    assert float(loss([{"vectors": torch.eye(2)}], teacher)) == pytest.approx(math.log(1 + math.exp(-2)))
    assert float(loss([{"vectors": torch.eye(2).flip(0)}], teacher)) == pytest.approx(1 + math.log(1 + math.exp(2)))


def test_the_contrast_is_with_the_texts_of_all_processes(monkeypatch):
    loss, vectors, teacher = DistillationLoss(Given(), tau=0.5), torch.randn(4, 3), torch.randn(4, 3)
    one = loss([{"vectors": vectors}], teacher)
    monkeypatch.setattr(objective, "gathered", lambda own: vectors if torch.equal(own, vectors[2:]) else teacher)
    assert float(loss([{"vectors": vectors[2:]}], teacher[2:])) == pytest.approx(float(one))
