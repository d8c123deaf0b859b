"""Checkpoints of the trained weights alone, also of a model that is divided among processes."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.fsdp import fully_shard

from xalign_models.errors import ModelError
from xalign_models.training.records import WEIGHTS
from xalign_models.training.trainer import load_trained


@pytest.fixture
def model():
    """Its second layer is trained."""
    found = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, bias=False))
    found[0].requires_grad_(False)
    return found


def test_trained_weights_are_put_in_and_all_others_stay(model, tmp_path):
    frozen = model[0].weight.clone()
    save_file({"1.weight": torch.full((2, 2), 7.0)}, tmp_path / WEIGHTS)
    load_trained(model, tmp_path)
    assert bool((model[1].weight == 7).all())
    assert torch.equal(model[0].weight, frozen)


def test_trained_weights_are_put_into_shards(model, mesh, tmp_path):
    save_file({"1.weight": torch.arange(4.0).reshape(2, 2)}, tmp_path / WEIGHTS)
    fully_shard(model, mesh=mesh)
    load_trained(model, tmp_path)
    assert model[1].weight.full_tensor().tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("names", "other"),
    [(("inner.1.weight",), r"1\.weight"), (("0.weight", "1.weight"), r"0\.weight"), ((), r"1\.weight")],
)
def test_weights_of_other_names_are_refused(model, tmp_path, names, other):
    before = model[1].weight.clone()
    save_file({name: torch.zeros(2, 2) for name in names}, tmp_path / WEIGHTS)
    with pytest.raises(
        ModelError, match=rf"does not match the weights that this training changes \(e\.g\. {other}\); remove"
    ):
        load_trained(model, tmp_path)
    assert torch.equal(model[1].weight, before)
