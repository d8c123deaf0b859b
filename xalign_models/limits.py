"""Limits of configurations' fields, in one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xalign_models.errors import ModelError

SEEDS = 2**32
"""What a seed must be below, as numpy's are."""


def at_least(config: Any, *, called: Callable[[str], str] = str, **limits: float) -> None:
    """Check that fields are no less than their limits; a field that is None has none.

    Args:
        config: Of these fields.
        called: What the message calls a field, e.g. the CLI's flag; its name if not given.
        **limits: A field's least value.

    Raises:
        ModelError: A value below its limit, or not a number (NaN).
    """
    for name, least in limits.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ModelError(f"{called(name)} {value}: at least {least}.")


def within(config: Any, *, called: Callable[[str], str] = str, **ranges: tuple[float, float]) -> None:
    """Check that fields are no less than a limit and below another.

    Args:
        config: Of these fields.
        called: What the message calls a field; its name if not given.
        **ranges: A field's least value, and what it must be below.

    Raises:
        ModelError: A value out of its range, or not a number (NaN).
    """
    for name, (least, limit) in ranges.items():
        if not least <= (value := getattr(config, name)) < limit:
            raise ModelError(f"{called(name)} {value}: at least {least} and below {limit}.")


def positive(config: Any, *names: str, called: Callable[[str], str] = str) -> None:
    """Check that fields are above 0.

    Args:
        config: Of these fields; one that is a mapping has a value by name.
        *names: The fields.
        called: What the message calls a field; its name if not given.

    Raises:
        ModelError: A value is not.
    """
    for name in names:
        value = getattr(config, name)
        for field, one in value.items() if isinstance(value, Mapping) else [("", value)]:
            if not one > 0:
                raise ModelError(f"{'.'.join(filter(None, (called(name), field)))} {one}: it must be above 0.")
