"""Progress bars that vanish at their end on a terminal, and a line a minute elsewhere."""

import sys
from collections.abc import Iterable
from time import time
from typing import Any

from tqdm import tqdm as plain_bar
from tqdm.auto import tqdm

MINUTE = 60.0
"""Least time between two lines in a pipe, in seconds."""


class Lines(plain_bar):
    """A bar that writes a line a minute, counted over all bars of the process."""

    monitor_interval = 0
    last = time()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": False, "mininterval": MINUTE, "miniters": 1, "delay": 1e-9})
        self.last_print_t = Lines.last

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write the bar's state as a line once a minute; an empty message, which erases bars, writes nothing."""
        if msg is None and not self.disable and time() - Lines.last >= MINUTE:
            Lines.last = time()
            self.fp.write(f"{self}\n")
        return True

    def close(self) -> None:
        """End without a line."""
        self.disable = True


def live(iterable: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """A tqdm bar that appears after two seconds and is erased at its end; options of tqdm override these defaults.

    Without an iterable, the bar is moved by ``update``. Where the output is not a terminal, it is :class:`Lines`.
    """
    stream: Any = kwargs.setdefault("file", sys.stderr)
    if not stream.isatty() and not kwargs.get("disable"):
        return Lines(iterable, **{"ncols": 80, "ascii": True, "leave": False, **kwargs})
    return tqdm(iterable, **{"delay": 2, "disable": None, "leave": False, **kwargs})
