"""What there is to score, cut into units: first those that encode each language once, then blocks of what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from xalign_models.evaluation.run import languages_of

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

MOST, LEAST = 2048, 64
"""Subsets of a unit whose languages are encoded already, at most, and at least where there are as many."""


@dataclass(frozen=True)
class Unit:
    """A piece of work: some subsets of a task by one model.

    Attributes:
        model: A name, a directory or a hub id.
        task: Its name.
        subsets: Those to score.
        splits: The task's splits.
        data: Revision of the task's text, as a check that a worker has the same.
        gives: Languages that it is the first to encode.
    """

    model: str
    task: str
    subsets: tuple[str, ...]
    splits: tuple[str, ...]
    data: str
    gives: tuple[str, ...] = ()


def plan(
    model: str, task: AbsTask, subsets: Sequence[str], givers: Mapping[str, Unit], pieces: int, most: int = MOST
) -> tuple[dict[Unit, set[Unit]], dict[str, Unit]]:
    """The units of a model on a task, and which others each waits for.

    A unit waits for those that encode its languages before it does; of units that may run side by side no two bring the
    same language. All pairs of 204 languages are 102 pairs that have no language in common, spread over the cluster,
    and then blocks of the others, each as soon as its languages are there.

    Args:
        model: A name, a directory or a hub id.
        task: The task.
        subsets: Those to score.
        givers: What encodes a language, of models with the same vectors that were planned before.
        pieces: Units that languages are spread over; a few times as many as run at once keep all busy.
        most: Subsets of a unit whose languages are encoded already.

    Returns:
        The units with what they wait for, and the givers with those among them.
    """
    by_subset = languages_of(task)
    known, planned = dict(givers), dict[Unit, set[Unit]]()
    groups: dict[frozenset[str], list[str]] = {}  # a pair and its reverse
    for subset in sorted(subsets):
        groups.setdefault(frozenset(by_subset[subset]), []).append(subset)

    def add(chosen: Sequence[frozenset[str]], members: Sequence[str], before: Mapping[str, Unit]) -> Unit:
        needed = frozenset[str]().union(*chosen)
        gives = tuple(sorted(needed - before.keys()))
        unit = Unit(
            model, task.metadata.name, tuple(members), tuple(task.eval_splits), str(task.metadata.revision), gives
        )
        planned[unit] = {before[language] for language in needed & before.keys()}
        return unit

    rest = sorted(groups, key=sorted)
    while fresh := list(_apart(rest, known.keys())):
        count, before = min(pieces, len(fresh)), dict(known)
        for chosen in (fresh[start::count] for start in range(count)):
            unit = add(chosen, [subset for group in chosen for subset in groups[group]], before)
            known |= dict.fromkeys(unit.gives, unit)
        taken = {*fresh}
        rest = [group for group in rest if group not in taken]
    left = [subset for group in _blocks(rest, most) for subset in groups[group]]
    for share in shares(left, min(most, max(LEAST, -(-len(left) // pieces)))):
        add([frozenset(by_subset[subset]) for subset in share], share, known)
    return planned, known


def _apart(groups: Sequence[frozenset[str]], known: Set[str]) -> Iterator[frozenset[str]]:
    """Groups that bring languages, no two of them the same."""
    taken: set[str] = set()
    for group in groups:
        if (new := group - known) and not new & taken:
            taken |= new
            yield group


def _blocks(groups: Sequence[frozenset[str]], most: int) -> list[frozenset[str]]:
    """Groups in such an order that as many as make ``most`` pairs have few languages: squares, not rows."""
    width = max(1, isqrt(most // 2))
    place = {language: i // width for i, language in enumerate(sorted(frozenset[str]().union(*groups)))}
    return sorted(groups, key=lambda group: (sorted(place[language] for language in group), sorted(group)))


def shares(subsets: Sequence[str], most: int = MOST) -> list[tuple[str, ...]]:
    """Subsets in pieces of nearly equal, even size."""
    if not subsets:
        return []
    pieces = -(-len(subsets) // most)
    size = 2 * -(-len(subsets) // (2 * pieces))
    return [tuple(subsets[start : start + size]) for start in range(0, len(subsets), size)]
