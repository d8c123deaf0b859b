"""The schedulers that may be asked for."""

from __future__ import annotations

import pytest
import torch
from transformers import get_scheduler

from xalign_models.training.schedulers import Scheduler


@pytest.mark.parametrize("name", Scheduler)
def test_each_is_transformers_and_needs_no_options(name):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=4)
    optimizer.step()
    scheduler.step()
    assert 0 < scheduler.get_last_lr()[0] <= 1
