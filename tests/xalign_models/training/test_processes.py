"""What a training leaves as it was."""

from __future__ import annotations

import numpy as np
import torch

from xalign_models.training.processes import own_randomness


def test_randomness_outside_is_left_alone():
    import random

    states = [random.getstate(), np.random.get_state(), torch.get_rng_state()]  # noqa: NPY002
    with own_randomness():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1][1])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])
