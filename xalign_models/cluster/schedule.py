"""The driver's schedule of a run on a cluster: units to do, units they wait for, and results so far."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from math import isqrt
from time import perf_counter
from typing import Any

from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from xalign_models.errors import DataError, XAlignError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import Outcome, languages_of, remove_items
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.results.items import Level, full_folder, save_items

MOST, LEAST = 2048, 64
"""Maximum and minimum number of subsets of a unit whose languages are encoded already."""


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


def plan(
    model: str, task: AbsTask, subsets: Sequence[str], givers: Mapping[str, Unit], pieces: int, most: int = MOST
) -> tuple[dict[Unit, set[Unit]], dict[str, Unit]]:
    """The units of a model on a task, and the units that each waits for.

    A unit waits for the units that encode its languages first; units that can run at once never encode the same
    language. All pairs of 204 languages give 102 pairs without a common language, spread over the cluster, and then
    blocks of the other pairs, each as soon as its languages are encoded.

    ``givers`` has, for each language, the unit that encodes it, from models with the same vectors that were planned
    before. Languages are spread over ``pieces`` units; a few times the number of slots keeps all workers busy. A unit
    whose languages are encoded already has at most ``most`` subsets.

    Returns:
        The units with the units that they wait for, and ``givers`` with the new units.
    """
    by_subset = languages_of(task)
    known, planned = dict(givers), dict[Unit, set[Unit]]()
    groups: dict[frozenset[str], list[str]] = {}  # a pair and its reverse
    for subset in sorted(subsets):
        groups.setdefault(frozenset(by_subset[subset]), []).append(subset)

    def add(chosen: Sequence[frozenset[str]], members: Sequence[str], before: Mapping[str, Unit]) -> Unit:
        needed = frozenset[str]().union(*chosen)
        gives = tuple(sorted(needed - before.keys()))
        about = task.metadata
        unit = Unit(model, about.name, tuple(members), tuple(task.eval_splits), str(about.revision), gives)
        planned[unit] = {before[language] for language in needed & before.keys()}
        return unit

    rest = sorted(groups, key=sorted)
    while fresh := list(_apart(rest, known.keys())):
        count, before = min(pieces, len(fresh)), dict(known)
        for chosen in (fresh[start::count] for start in range(count)):
            unit = add(chosen, [subset for group in chosen for subset in groups[group]], before)
            known |= dict.fromkeys(unit.gives, unit)
        rest = sorted({*rest} - {*fresh}, key=sorted)
    left = [subset for group in _blocks(rest, most) for subset in groups[group]]
    for share in shares(left, min(most, max(LEAST, -(-len(left) // pieces)))):
        add([frozenset(by_subset[subset]) for subset in share], share, known)
    return planned, known


def _apart(groups: Sequence[frozenset[str]], known: Set[str]) -> Iterator[frozenset[str]]:
    """Groups with new languages, such that no two groups share a new language."""
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


def shares(subsets: Sequence[str], most: int = MOST) -> list[tuple[str, ...]]:
    """Subsets in shares of nearly equal, even size."""
    if not subsets:
        return []
    pieces = -(-len(subsets) // most)
    size = 2 * -(-len(subsets) // (2 * pieces))
    return [tuple(subsets[start : start + size]) for start in range(0, len(subsets), size)]


REST = 10
"""A growing result is written again after this many times the duration of the last write, to leave the driver time."""


@dataclass(frozen=True)
class FittedModel:
    """A model that a worker has fitted, as the driver knows it.

    Attributes:
        encoder: The fitted model without its backbone.
        hardware: Name of the worker's device.
        error: Why there is no encoder.
    """

    encoder: XAlignEncoder | None = None
    hardware: str = ""
    error: str = ""


@dataclass(frozen=True)
class Scored:
    """The result of a unit.

    Attributes:
        result: mteb's result of the unit's subsets; None if it failed.
        error: Reason of the failure.
        items: Outcomes of single items, an array per subset.
    """

    result: TaskResult | None
    error: str = ""
    items: dict[str, Any] = field(default_factory=dict)


@dataclass
class Schedule:
    """Units in the order in which they can run, and their results."""

    cache: SafeResultCache
    tasks: dict[str, AbsTask]
    names: dict[str, str]
    items: Level
    pieces: int
    most: int
    _fitted: dict[str, FittedModel] = field(default_factory=dict)
    _fits: dict[str, Any] = field(default_factory=dict)
    _waiting: dict[Unit, set[Unit]] = field(default_factory=dict)
    _vectors: dict[Unit, Any] = field(default_factory=dict)
    _open: dict[tuple[str, str], set[Unit]] = field(default_factory=dict)
    _errors: dict[tuple[str, str], str] = field(default_factory=dict)
    _unsaved: dict[tuple[str, str], list[Scored]] = field(default_factory=lambda: defaultdict(list))
    _due: dict[tuple[str, str], float] = field(default_factory=dict)

    def open(self, fitted: dict[str, FittedModel], vectors: Any) -> Iterator[Outcome]:
        """Plan the units of models that share their vectors; yields the outcomes that need no unit."""
        self._fitted |= fitted
        self._fits |= dict.fromkeys(fitted, vectors)
        for name, task in self.tasks.items():
            givers: dict[str, Unit] = {}
            for model, known in fitted.items():
                try:
                    if known.encoder is None:
                        raise DataError(known.error)
                    left = self._left(known.encoder, task)
                except XAlignError as error:
                    yield Outcome(self._name(model), name, None, error=str(error))
                    continue
                if not left:
                    yield self._outcome(model, task, fresh=False)
                    continue
                own, givers = plan(model, task, left, givers, self.pieces, self.most)
                self._waiting |= own
                self._open[model, name] = set(own)

    def _left(self, encoder: XAlignEncoder, task: AbsTask) -> list[str]:
        """Subsets that the model can be scored on and has no score for."""
        by_subset = languages_of(task)
        able = [subset for subset in task.hf_subsets if not encoder.unfitted(by_subset[subset])]
        if not able:
            unfitted = encoder.unfitted({code for subset in task.hf_subsets for code in by_subset[subset]})
            raise DataError(f"No subset can be scored: {encoder.refusal(unfitted)}.")
        self.cache.keep_only_usable(task, encoder.mteb_model_meta)
        if (have := self._result(encoder, task)) is None:
            return able
        missing = {*chain.from_iterable(have.get_missing_evaluations(task).values())}
        return [subset for subset in able if subset in missing]

    def _result(self, encoder: XAlignEncoder, task: AbsTask) -> TaskResult | None:
        path = self.cache.path_of(task.metadata.name, encoder.mteb_model_meta)
        return TaskResult.from_disk(path) if path.is_file() else None

    def ready(self) -> list[tuple[Unit, list[Any]]]:
        """Units that can run now, each returned once, with the vectors that it needs."""
        free = [unit for unit, ahead in self._waiting.items() if ahead <= self._vectors.keys()]
        given = [(unit, [self._fits[unit.model], *map(self._vectors.get, self._waiting.pop(unit))]) for unit in free]
        needed = set[Unit]().union(*self._waiting.values())
        self._vectors = {unit: vectors for unit, vectors in self._vectors.items() if unit in needed}
        return [(unit, [vectors for vectors in shared if vectors is not None]) for unit, shared in given]

    def close(self, unit: Unit, scored: Scored, vectors: Any) -> Iterator[Outcome]:
        """Record the result of a unit; yields the outcome of its model and task after their last unit."""
        self._vectors[unit] = vectors
        key = (unit.model, unit.task)
        if scored.result is None:
            self._errors.setdefault(key, scored.error)
        else:
            self._unsaved[key].append(scored)
        self._open[key].remove(unit)
        if not self._open[key]:
            self._save(key)
            yield self._outcome(unit.model, self.tasks[unit.task], fresh=True)
        elif perf_counter() >= self._due.get(key, 0):
            self._save(key)

    def save(self) -> None:
        """Write all results that are not written yet."""
        for key in [*self._unsaved]:
            self._save(key)

    def _save(self, key: tuple[str, str]) -> None:
        if not (scored := self._unsaved.pop(key, [])):
            return
        start = perf_counter()
        model, name = key
        known = self._fitted[model]
        assert known.encoder is not None
        meta = known.encoder.mteb_model_meta
        full = full_folder(self.cache.path_of(name, meta).parent)
        self.cache.hardware = known.hardware
        with self.cache.turn(name, meta):
            before = self._result(known.encoder, self.tasks[name])
            if items := dict(chain.from_iterable(one.items.items() for one in scored)):
                save_items(full, name, items)
            results = [result for result in (before, *(one.result for one in scored)) if result]
            self.cache.save_to_cache(merged(results), meta)
            if self.items != "full":
                remove_items(full, name)
        now = perf_counter()
        self._due[key] = now + REST * (now - start)

    def _outcome(self, model: str, task: AbsTask, fresh: bool) -> Outcome:
        encoder, name = self._fitted[model].encoder, task.metadata.name
        assert encoder is not None
        unfitted = encoder.unfitted({code for codes in languages_of(task).values() for code in codes})
        if error := self._errors.get((model, name)):
            return Outcome(self._name(model), name, None, unfitted=tuple(unfitted), error=error)
        return Outcome(self._name(model), name, self._result(encoder, task), fresh, tuple(unfitted))

    def _name(self, model: str) -> str:
        """The model's name; that of a saved model is in its card, which only a worker has read."""
        encoder = self._fitted[model].encoder
        return self.names[model] if encoder is None else str(encoder.mteb_model_meta.name)


def merged(results: Sequence[TaskResult]) -> TaskResult:
    """Merge results of one task, later ones first; by halves, since a merge takes as long as both have subsets."""
    if len(results) == 1:
        return results[0]
    half = len(results) // 2
    return merged(results[:half]).merge(merged(results[half:]))
