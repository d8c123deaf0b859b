"""Progress bars that appear only on a terminal and vanish at the end."""

from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def live(iterable: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """A tqdm bar that appears after two seconds and is erased at its end; options of tqdm override these defaults.

    Without an iterable, the bar is moved by ``update``.
    """
    return tqdm(iterable, **{"delay": 2, "disable": None, "leave": False, **kwargs})
