"""Encodes on several devices of one machine, one process for each; only the main process writes the store."""

import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from xalign_models.backbones.pipeline import CHUNK, Batch
from xalign_models.backbones.raw import FLUSH, RawEncoder
from xalign_models.errors import ModelError
from xalign_models.plugins import load_plugins, sources

Encoded = list[tuple[Batch, npt.NDArray[np.float32]]]
ROUNDS = 4
"""Pieces of work per process: with several, processes do not wait long for the last one."""


class Processes(nn.Module):
    """The only module of a backbone that runs in other processes; it has no weights.

    Args:
        load: Returns the modules on a device; must be picklable.
        devices: Devices of the processes, such as ``cuda:0`` and ``cuda:1``.
    """

    def __init__(self, load: Callable[[str], Sequence[nn.Module]], devices: Sequence[str]) -> None:
        super().__init__()
        context = torch.multiprocessing.get_context("spawn")  # CUDA cannot be used in a forked process
        free = context.SimpleQueue()
        for device in devices:
            free.put(device)
        threads = max(1, torch.get_num_threads() // len(devices))
        self.count = len(devices)
        self._pool = ProcessPoolExecutor(self.count, context, _open, (load, free, threads, sources()))
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def stream(self, texts: Sequence[str], prompt: str) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Batches and their vectors (b, d), in order of completion.

        Raises:
            ModelError: A process died.
        """
        size = min(CHUNK, max(FLUSH, -(-len(texts) // (ROUNDS * self.count))))
        try:
            running: dict[Future[Encoded], int] = {
                self._pool.submit(_encode, texts[start : start + size], prompt): start
                for start in range(0, len(texts), size)
            }
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    start = running.pop(future)
                    for batch, vectors in future.result():
                        yield replace(batch, rows=start + batch.rows), vectors
        except BrokenProcessPool:
            raise ModelError(
                "An encoding process died, perhaps for lack of memory; use fewer devices or --max-tokens."
            ) from None


_encoders: list[RawEncoder] = []
"""The encoder of this process."""


def _open(
    load: Callable[[str], Sequence[nn.Module]], free: SimpleQueue[str], threads: int, plugins: Sequence[str]
) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    load_plugins(plugins)
    device = free.get()
    _encoders.append(RawEncoder("", lambda: load(device), device))


def _leave_with_parent() -> None:
    """End this process with its parent, even a killed one: otherwise it would keep its device busy."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _encode(texts: Sequence[str], prompt: str) -> Encoded:
    vectors = _encoders[0].vectors(list(texts), prompt)
    return [(replace(batch, features={}), part) for batch, part in vectors]


def moved(modules: Sequence[Any], device: str) -> list[Any]:
    """The modules on a device."""
    return [module.to(device) for module in modules]
