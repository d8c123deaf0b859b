"""The units of a run on a cluster: first those that encode each language once, then blocks of subsets."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isqrt

from mteb.abstasks import AbsTask

from xalign_models.evaluation.run import languages_of

MOST, LEAST = 2048, 64
"""Maximum and minimum number of subsets in a unit whose languages are encoded already."""


@dataclass(frozen=True)
class Unit:
    """Some subsets of a task, to be scored with one model on the task's splits.

    ``data`` is the revision of the task's text, by which a worker checks that its text is the same. ``gives`` are the
    languages that this unit is the first to encode.
    """

    model: str
    task: str
    subsets: tuple[str, ...]
    splits: tuple[str, ...]
    data: str
    gives: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The unit in messages."""
        more = f" and {len(self.subsets) - 1} more" if len(self.subsets) > 1 else ""
        return f"{self.task} of {self.model}, {self.subsets[0]}{more}"


def plan(
    model: str, task: AbsTask, subsets: Sequence[str], givers: Mapping[str, Unit], pieces: int, most: int = MOST
) -> tuple[dict[Unit, set[Unit]], dict[str, Unit]]:
    """The units of a model on a task, and the units that each of them waits for.

    A unit waits for the units that encode its languages first; units that can run at once never encode the same
    language. All pairs of 204 languages give 102 pairs without a common language, spread over the cluster, followed by
    blocks of the other pairs, each starting as soon as its languages are encoded.

    ``givers`` has, for each language, the unit that encodes it, from models with the same vectors that were planned
    before. Languages are spread over ``pieces`` units; a few times the number of slots keeps all workers busy. A unit
    with languages encoded already has at most ``most`` subsets, but subsets in the same languages stay together.

    Returns:
        The units with the units that they wait for, and ``givers`` with the new units.
    """
    by_subset = languages_of(task)
    known, planned = dict(givers), dict[Unit, set[Unit]]()
    groups: dict[frozenset[str], list[str]] = {}  # a pair and its reverse
    for subset in sorted(subsets):
        groups.setdefault(frozenset(by_subset[subset]), []).append(subset)

    def add(chosen: Sequence[frozenset[str]], before: Mapping[str, Unit]) -> Unit:
        needed, about = frozenset[str]().union(*chosen), task.metadata
        members = tuple(subset for group in chosen for subset in groups[group])
        gives = tuple(sorted(needed - before.keys()))
        unit = Unit(model, about.name, members, tuple(task.eval_splits), str(about.revision), gives)
        planned[unit] = {before[language] for language in needed & before.keys()}
        return unit

    rest = sorted(groups, key=sorted)
    while fresh := list(_apart(rest, known.keys())):
        count, before = min(pieces, len(fresh)), dict(known)
        for chosen in (fresh[start::count] for start in range(count)):
            unit = add(chosen, before)
            known |= dict.fromkeys(unit.gives, unit)
        rest = sorted({*rest} - {*fresh}, key=sorted)
    blocks, left = _blocks(rest, most), sum(len(groups[group]) for group in rest)
    count = min(len(blocks), -(-left // min(most, max(LEAST, -(-left // pieces)))))
    for i in range(count):
        add(blocks[len(blocks) * i // count : len(blocks) * (i + 1) // count], known)
    return planned, known


def _apart(groups: Sequence[frozenset[str]], known: Set[str]) -> Iterator[frozenset[str]]:
    """Groups with new languages, where no two groups share a new language."""
    taken: set[str] = set()
    for group in groups:
        if (new := group - known) and not new & taken:
            taken |= new
            yield group


def _blocks(groups: Sequence[frozenset[str]], most: int) -> list[frozenset[str]]:
    """Groups ordered by squares of the language matrix, so that ``most`` consecutive pairs have few languages."""
    width = max(1, isqrt(most // 2))
    place = {language: i // width for i, language in enumerate(sorted(frozenset[str]().union(*groups)))}
    return sorted(groups, key=lambda group: (sorted(place[language] for language in group), sorted(group)))
