"""Progress bars that appear only on a terminal and vanish at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def live(iterable: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """A tqdm bar that appears after two seconds and is erased at its end.

    Args:
        iterable: Items to count; None for a bar moved by ``update``.
        kwargs: Options of tqdm, which override these defaults.
    """
    return tqdm(iterable, **{"delay": 2, "disable": None, "leave": False, **kwargs})
