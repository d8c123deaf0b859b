"""The processes of ``accelerate launch``, and the random generators of this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def is_main_process() -> bool:
    """Whether this process writes: all do but those that ``accelerate launch`` starts beside the first."""
    return int(os.environ.get("RANK", "0")) == 0


def process_count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def own_randomness() -> Iterator[None]:
    """Whatever is seeded and drawn inside, the generators of Python, numpy and torch are as before afterwards."""
    import random

    import numpy as np
    import torch

    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
