"""Undoes what a test registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xalign_models.plugins import Registry, load_plugins


@contextmanager
def restored(registry: Registry[Any]) -> Iterator[None]:
    """Undo, at the end of the block, every registration made in it."""
    registry._import_home()
    load_plugins()
    before = dict(registry._entries)
    try:
        yield
    finally:
        registry._entries = before
