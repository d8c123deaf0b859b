"""What a training set is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Row = tuple[str, ...]
"""(text,), or (query, passage, hard negative, ...)."""


@dataclass(frozen=True)
class Source:
    """A training set.

    Attributes:
        name: What configurations call it.
        pairs: Whether its rows are pairs, with or without hard negatives, rather than texts alone.
        trains: mteb's names of the data sets that hold it: the ``training_datasets`` of what is trained on it.
        read: Reads at most so many rows, drawn with a seed; None is all. Test rows of evaluation sets are not among
            them as far as the source itself can tell.
        description: Where it comes from and what is left out.
    """

    name: str
    pairs: bool
    trains: tuple[str, ...]
    read: Callable[[int | None, int], list[Row]]
    description: str


def draw(rows: Sequence[Row], limit: int | None, seed: int) -> list[Row]:
    """At most ``limit`` rows, drawn without replacement, in a random order that depends on the seed alone."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order[:limit]]
