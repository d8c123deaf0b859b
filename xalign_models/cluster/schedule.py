"""The driver's schedule of a run on a cluster: units to do, units they wait for, and results so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

from xalign_models.cluster.grid import Unit, plan
from xalign_models.errors import DataError, XAlignError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import Outcome, languages_of, remove_items
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.results.items import Level, full_folder, save_items

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

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
        from mteb.results import TaskResult

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
