"""The processes of ``accelerate launch``, and the random generators of this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_main_process() -> bool:
    """Whether this process writes files: the only process, or the first one of ``accelerate launch``."""
    return int(os.environ.get("RANK", "0")) == 0


def process_count() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def gathered(values: Tensor) -> Tensor:
    """(n, ...) of every process, concatenated to (n * processes, ...); gradients flow back to each process' own rows.

    All processes compute the same loss of gathered values. As they average their gradients, the gradient is that of one
    process with all rows.
    """
    if process_count() == 1:
        return values
    from sentence_transformers.util import all_gather_with_grad

    joined: Tensor = all_gather_with_grad(values.contiguous())
    return joined


def shared(items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
    """The results of all items, in their order; each process works on its share of them."""
    rank, processes = int(os.environ.get("RANK", "0")), process_count()
    results = [work(item) for item in items[rank::processes]]
    if processes == 1:
        return results
    import torch.distributed

    shares: list[list[Result]] = [[] for _ in range(processes)]
    torch.distributed.all_gather_object(shares, results)
    return [shares[number % processes][number // processes] for number in range(len(items))]


def own_rows(count: int) -> slice:
    """This process' own rows among ``count`` gathered ones."""
    size, rank = count // process_count(), int(os.environ.get("RANK", "0"))
    return slice(rank * size, (rank + 1) * size)


def wait_for_all() -> None:
    """Return once every process has come to this line."""
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Restore the random generators of Python, numpy and torch after the context."""
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
