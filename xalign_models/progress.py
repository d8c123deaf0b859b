"""Progress: a live bar on a terminal that leaves no line behind, and nothing in a pipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def live(iterable: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """A tqdm bar that appears after two seconds and is erased at its end, so that results alone stay on the screen.

    Args:
        iterable: What to count; None for a bar that is moved by ``update``.
        kwargs: tqdm's, which win over the defaults.
    """
    return tqdm(iterable, **{"delay": 2, "disable": None, "leave": False, **kwargs})
