"""What there is to score, cut into units that share no text unless one waits for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xalign_models.evaluation.run import languages_of

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

MOST = 2048
"""Subsets of a unit whose texts are encoded already."""


@dataclass(frozen=True)
class Unit:
    """A piece of work: some subsets of a task by one model.

    Attributes:
        model: A name, a directory or a hub id.
        task: Its name.
        subsets: Those to score.
        splits: The task's splits.
        data: Revision of the task's text, as a check that a worker has the same.
    """

    model: str
    task: str
    subsets: tuple[str, ...]
    splits: tuple[str, ...]
    data: str


def islands(task: AbsTask, subsets: Sequence[str]) -> list[tuple[str, ...]]:
    """Subsets grouped so that no language is in two groups: what is encoded for one is not needed for another.

    A pair and its reverse stand next to each other.
    """
    by_subset = languages_of(task)
    above: dict[str, str] = {}

    def island(language: str) -> str:
        while above.setdefault(language, language) != language:
            language = above[language]
        return language

    for subset in subsets:
        first, *others = map(island, by_subset[subset])
        for other in others:
            above[island(other)] = island(first)
    groups: dict[str, list[str]] = {}
    for subset in sorted(subsets, key=lambda one: (sorted(by_subset[one]), one)):
        groups.setdefault(island(next(iter(by_subset[subset]))), []).append(subset)
    return [tuple(members) for members in groups.values()]


def shares(subsets: Sequence[str], most: int = MOST) -> list[tuple[str, ...]]:
    """Subsets in pieces of nearly equal, even size."""
    pieces = -(-len(subsets) // most)
    size = 2 * -(-len(subsets) // (2 * pieces))
    return [tuple(subsets[start : start + size]) for start in range(0, len(subsets), size)]


def units(model: str, task: AbsTask, subsets: Sequence[str], encoded: bool, most: int = MOST) -> list[Unit]:
    """The units of a model on a task.

    Args:
        model: A name, a directory or a hub id.
        task: The task.
        subsets: Those to score.
        encoded: Whether the texts are in the store already, so that any cut will do.
        most: Subsets of a unit, then.
    """
    cells = islands(task, subsets)
    if encoded:
        cells = [share for cell in cells for share in shares(cell, most)]
    revision = str(task.metadata.revision)
    return [Unit(model, task.metadata.name, cell, tuple(task.eval_splits), revision) for cell in cells]
