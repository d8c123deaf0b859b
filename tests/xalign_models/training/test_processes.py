"""What a training leaves as it was."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch

from xalign_models.training.processes import own_randomness, shared


def test_randomness_outside_is_left_alone():
    import random

    states = [random.getstate(), np.random.get_state(), torch.get_rng_state()]  # noqa: NPY002
    with own_randomness():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1][1])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_shared_work_comes_back_in_order(monkeypatch, count):
    assert shared(range(count), str) == [str(i) for i in range(count)]
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = []

    def all_gather(shares, own):
        done.append(own)
        if len(done) == 2:
            shares[:] = done

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather)
    monkeypatch.setenv("RANK", "0")
    with suppress(IndexError):
        shared(range(count), str)  # the other's share is missing as yet
    monkeypatch.setenv("RANK", "1")
    assert shared(range(count), str) == [str(i) for i in range(count)]
    assert [len(own) for own in done] == [(count + 1) // 2, count // 2]
