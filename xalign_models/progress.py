"""Progress bars, which appear only on a terminal and vanish at their end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def live(iterable: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """A tqdm bar that appears after two seconds and is erased at its end.

    Args:
        iterable: Items to count; None for a bar moved by ``update``.
        kwargs: Options of tqdm, which override the defaults.
    """
    return tqdm(iterable, **{"delay": 2, "disable": None, "leave": False, **kwargs})
