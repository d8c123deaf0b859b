"""Which devices are taken: one, or some where a process each is started."""

from __future__ import annotations

import pytest
import torch

from xalign_models.cluster import Cluster
from xalign_models.device import each, pick_device
from xalign_models.errors import ModelError
from xalign_models.evaluation.cache import hardware


@pytest.fixture
def gpus(monkeypatch):
    """Three GPUs, of which the last is of another kind."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda name: "Small" if name == "cuda:2" else "Large")


def test_all_gpus_are_taken_one_by_one(gpus):
    chosen = pick_device("cuda:all", several=True)
    assert each(chosen) == ["cuda:0", "cuda:1", "cuda:2"]
    assert hardware(chosen) == "2 x Large, Small"
    assert hardware("cuda:0") == "Large"


@pytest.mark.parametrize("device", ["cuda:all", "cuda:0,cuda:1"])
def test_where_there_can_be_but_one_device_some_are_refused(gpus, device):
    with pytest.raises(ModelError, match="only one device is supported here"):
        pick_device(device)
    with pytest.raises(ModelError, match="Ray assigns the devices"):
        Cluster(device=device)


@pytest.mark.parametrize("device", ["cuda:0,cuda:3", "cuda:0,", "cuda:0,gpu", "cuda:x,cpu"])
def test_a_device_among_some_that_is_not_there_is_refused(gpus, device):
    with pytest.raises(ModelError, match="is not usable on this machine; usable: cpu, cuda"):
        pick_device(device, several=True)


def test_without_a_gpu_all_gpus_are_refused():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ModelError, match="cuda:all is not usable on this machine; usable: cpu"):
        pick_device("cuda:all", several=True)
