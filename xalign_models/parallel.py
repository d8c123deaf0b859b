"""Work on all processors of one machine, in copies of the running process."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BufferedRandom
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from typing import TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")
MANY = 1000
"""Number of files or models from which on copies of the process are worth starting."""
MOST = 8
"""Maximum number of processes, each of which needs memory for its share."""
TURN = threading.RLock()
"""Threads load and encode in turn: a tokenizer's settings and the type of new tensors are shared by the process."""


def map_forked(function: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """``[function(item) for item in items]``, in copies of this process if ``size`` is :data:`MANY` or more.

    ``size`` is the number of files or models behind the items.

    Copies see all that this process has in memory; their results come back pickled. A processor takes the next item
    when it has done one, so the longest items should come first. If a copy is killed, this process does its items.
    Only Linux copies processes safely, and only those without other threads and without torch, which has its own.

    Raises:
        Exception: An error of ``function``.
    """
    able = sys.platform == "linux" and hasattr(os, "memfd_create")  # a Python built for old systems lacks it
    workers = min(len(os.sched_getaffinity(0)), len(items), MOST) if able else 1
    if size < MANY or workers < 2 or threading.active_count() > 1 or "torch" in sys.modules:
        return [function(item) for item in items]
    context = get_context("fork")
    with os.fdopen(os.memfd_create("indices"), "r+b", buffering=0) as indices:  # all copies share its position
        indices.write(np.arange(len(items), dtype=np.int64).tobytes())
        indices.seek(0)

        def work() -> dict[int, R]:
            begun = iter(lambda: indices.read(8), b"")
            return {index: function(items[index]) for index in (int.from_bytes(i, sys.byteorder) for i in begun)}

        def serve(result: BufferedRandom) -> None:
            for interruption in (signal.SIGINT, signal.SIGTERM):  # which the first process reports
                signal.signal(interruption, signal.SIG_DFL)
            gc.freeze()  # a collection would copy the memory that both share
            with suppress(Exception):  # the first process repeats the item, and reports its error
                pickle.dump(work(), result, pickle.HIGHEST_PROTOCOL)
                result.flush()

        copies: list[tuple[ForkProcess, BufferedRandom]] = []
        for _ in range(workers - 1):
            result = os.fdopen(os.memfd_create("result"), "r+b")
            process = context.Process(target=serve, args=(result,), daemon=True)
            try:
                process.start()
            except OSError:  # of memory or processes there are too few
                result.close()
                break
            copies.append((process, result))
        done = work()
    for process, result in copies:
        process.join()
        with result, suppress(EOFError, pickle.UnpicklingError):
            result.seek(0)
            done |= pickle.load(result)
    return [done[index] if index in done else function(item) for index, item in enumerate(items)]
