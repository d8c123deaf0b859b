"""The contrastive loss: precision, hard negatives, cached gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from xalign_models.training.objective import contrastive_loss, cosine


def test_cosines_are_not_rounded_under_autocast():
    one, other = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    expected = nn.functional.normalize(one) @ nn.functional.normalize(other).T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cosine(one, other)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


class Table(nn.Module):
    """Stands in for a model: the embedding of token i is row i."""

    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, features):
        return {"sentence_embedding": self.rows[features["input_ids"][:, 0]]}

    def __getitem__(self, _):
        return self


def test_hard_negatives_of_all_rows_are_candidates():
    """Two rows, a hard negative each, every cosine worked out by hand: e1.(e1 e2 e1 -e1), e2.(the same)."""
    rows = torch.tensor([[2.0, 0], [0, 1], [1, 0], [0, 3], [5, 0], [-1, 0]])
    columns = [{"input_ids": torch.tensor(ids)[:, None]} for ids in ([0, 1], [2, 3], [4, 5])]
    e = math.e
    first = -math.log(e / (e + 1 + e + 1 / e))
    second = -math.log(e / (1 + e + 1 + 1))
    for mini in (None, 1, 2):
        found = contrastive_loss(Table(rows), 1.0, mini)(columns, None)
        assert found.item() == pytest.approx((first + second) / 2, abs=1e-6)


@pytest.mark.parametrize("mini", [1, 3, 8])
def test_cached_gradients_are_the_plain_ones(mini):
    rows = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
    found = []
    for size in (None, mini):
        model = Table(rows.clone())
        columns = [{"input_ids": torch.arange(i, i + 8)[:, None]} for i in (0, 8, 16)]
        loss = contrastive_loss(model, 0.05, size)(columns, None)
        loss.backward()
        found.append((loss.item(), model.rows.grad))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-5)


def test_half_precision_is_compared_in_single():
    one, other = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = cosine(one, other)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, cosine(one.float(), other.float()))


def test_the_temperature_divides_and_one_process_gathers_nothing():
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    columns = [{"input_ids": torch.tensor(ids)[:, None]} for ids in ([0, 1], [2, 3])]
    cosines = nn.functional.normalize(rows[:2]) @ nn.functional.normalize(rows[2:]).T
    expected = nn.functional.cross_entropy(cosines / 0.2, torch.arange(2))
    for gather in (False, True):
        found = contrastive_loss(Table(rows), 0.2, gather=gather)(columns, None)
        assert found.item() == pytest.approx(expected.item(), abs=1e-6)
