"""The processes of ``accelerate launch``, and this process' random generators."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch.distributed
from sentence_transformers.util import all_gather_with_grad
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from xalign_models.errors import ModelError

Item = TypeVar("Item")
Result = TypeVar("Result")


def process_number() -> int:
    """Number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def process_count() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process writes files: the only process, or the first one of ``accelerate launch``."""
    return process_number() == 0


def share_of(count: int, name: str, at_once: int = 1) -> int:
    """Number of rows or batches per process, out of ``count`` per optimisation step.

    Args:
        count: Rows or batches of all processes together.
        name: Field of the configuration, for the error.
        at_once: Rows that a process encodes together; its share is a multiple of this number.

    Raises:
        ModelError: The processes cannot share ``count`` equally.
    """
    if count % (process_count() * at_once):
        parts = f" in batches of {at_once}" if at_once > 1 else ""
        raise ModelError(
            f"{name} {count} cannot be shared by {process_count()} processes{parts}; launch a number of processes that "
            "divides it."
        )
    return count // process_count()


def gathered(values: Tensor) -> Tensor:
    """(n, ...) of every process, concatenated to (n * processes, ...); gradients flow back to each process' own rows.

    All processes compute the same loss of the gathered values and then average their gradients. The result is the
    gradient of one process with all rows.
    """
    if process_count() == 1:
        return values
    joined: Tensor = all_gather_with_grad(values.contiguous())
    return joined


def shared(items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
    """The results of all items, in their order; each process works on its share of them."""
    processes = process_count()
    results = [work(item) for item in items[process_number() :: processes]]
    if processes == 1:
        return results
    shares: list[list[Result]] = [[] for _ in range(processes)]
    torch.distributed.all_gather_object(shares, results)
    return [shares[number % processes][number // processes] for number in range(len(items))]


def own_rows(count: int) -> slice:
    """This process' own rows among ``count`` gathered ones."""
    size = count // process_count()
    return slice(process_number() * size, (process_number() + 1) * size)


def is_sharded(model: nn.Module) -> bool:
    """Whether weights are sharded among processes."""
    return any(isinstance(weight, DTensor) for weight in model.parameters())


def sharded_like(weight: Tensor, like: Tensor) -> Tensor:
    """This process' shard of a whole weight, or the weight if ``like`` is whole. All processes must call it at once."""
    return distribute_tensor(weight, like.device_mesh, like.placements) if isinstance(like, DTensor) else weight


def whole(weight: Tensor) -> Tensor:
    """The inverse of :func:`sharded_like`."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def wait_for_all() -> None:
    """Return once every process has reached this call."""
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Restore the random generators of Python, numpy and torch after the context."""
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
