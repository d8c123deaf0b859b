"""A training set and its rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Row = TypeVar("Row")
TrainingRow = tuple[str, ...]
"""(text,), or (query, passage, hard negative, ...)."""


@dataclass(frozen=True)
class TrainingSource:
    """A training set.

    Attributes:
        name: Name in configurations.
        pairs: Whether rows are pairs, with or without hard negatives, rather than single texts.
        trains: mteb's names of the data sets with its text: the ``training_datasets`` of models trained on it.
        read: Reads a maximum number of rows (None for all), drawn with a seed, without the set's own test rows.
        description: Origin and layout.
    """

    name: str
    pairs: bool
    trains: tuple[str, ...]
    read: Callable[[int | None, int], list[TrainingRow]]
    description: str


def draw(rows: Sequence[Row], limit: int | None, seed: int) -> list[Row]:
    """At most ``limit`` rows, drawn without replacement, in a random order that depends on the seed alone."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order[:limit]]
