"""``xalign run --engine ray``: models x tasks x subsets on the workers of a Ray cluster.

The first model on a task encodes each language once, spread over the workers; other units follow in blocks.
Each machine has its own store, and Ray's object store carries vectors between machines. Only the driver writes
results, which are complete at any moment. If a worker is lost, its unit is repeated elsewhere.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from xalign_models.cluster.cluster import Answer, Cluster, Pool, WorkerLostError
from xalign_models.cluster.encoding import whole_paths
from xalign_models.cluster.schedule import MOST, Unit, plan
from xalign_models.cluster.scoring import open_models, score
from xalign_models.errors import XAlignError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import Outcome, languages_of, make_task, of_subsets, remove_items
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.names import Located, locate_all
from xalign_models.results.items import Level, full_folder, save_items

PIECES = 4
"""Units per slot of the cluster that languages are spread over: few, but enough that no worker waits long."""
REST = 10
"""A growing result is rewritten after this many times the duration of the last write, to leave the driver time."""


def run(
    models: Sequence[str],
    tasks: Sequence[str | AbsTask],
    output: Path,
    cluster: Cluster,
    *,
    languages: Collection[str] | None,
    items: Level = "outcomes",
    overrides: dict[str, Any] | None = None,
    most: int = MOST,
    plugins: Sequence[str] | None = None,
) -> Iterator[Outcome]:
    """Score models on tasks as :func:`xalign_models.evaluation.run.run` does, on a cluster.

    Scores and files are the same, bit for bit on processors of one kind with as many threads as ``cluster.cpus``. Every
    machine needs the package, ``XALIGN_DATA`` with the same text as the driver's, and the directories of the models.

    Besides that function's arguments, there are ``cluster``, the cluster and the resources of a unit; ``most``, the
    maximum number of subsets of a unit whose texts are encoded already; and ``plugins``, files and modules that the
    workers load from their machines, by default this process's plug-ins.

    Yields:
        One outcome per model and task, as soon as it is available.
    """
    paths, given = whole_paths(models, overrides)
    located = locate_all(paths, **given)
    chosen = [make_task(task, languages) if isinstance(task, str) else task for task in tasks]
    families: dict[str, list[str]] = {}
    for model, place in located.items():
        families.setdefault(_family(model, place), []).append(model)
    tasks_by_name = {task.metadata.name: task for task in chosen}
    with cluster.pool(plugins) as pool:
        scorer = partial(score, cluster.device, given, items, len(pool.ray.nodes()) > 1)
        names = {model: place.name for model, place in located.items()}
        driver = _Driver(pool, scorer, SafeResultCache(output), tasks_by_name, names, items, most)
        for family in [*families.values(), *[[]] * (pool.slots - len(families))]:  # empty ones only load the code
            pool.start(tuple(family), open_models, cluster.device, given, family)
        try:
            for key, answer in pool.results():
                yield from driver.close(key, answer) if isinstance(key, Unit) else driver.open(key, answer)
        finally:  # also after an interruption
            with ExitStack() as last:  # runs all in reverse, even if one cannot be saved
                for result in driver.results.values():
                    last.callback(result.put_back)
                    last.callback(result.save)


def _family(model: str, located: Located) -> str:
    """A key that models with the same vectors share."""
    try:
        return located.namespace
    except XAlignError:  # a worker reports it
        return model


@dataclass
class _Driver:
    """The results of a run and its units; Ray begins each unit once the units that it waits for are done."""

    pool: Pool
    scorer: Callable[..., Answer]
    cache: SafeResultCache
    tasks: dict[str, AbsTask]
    names: dict[str, str]
    items: Level
    most: int
    results: dict[tuple[str, str], "Growing"] = field(default_factory=dict)
    waiting: set[Unit] = field(default_factory=set)

    def open(self, models: Sequence[str], answer: Any) -> Iterator[Outcome]:
        """Start the units of models that share their vectors; yields the outcomes that need no unit."""
        answers: list[Any] = [answer] * len(models) if isinstance(answer, Exception) else answer
        for name, task in self.tasks.items():
            givers, shared = dict[str, Unit](), dict[Unit, Any]()
            for model, opened in zip(models, answers, strict=True):
                try:
                    if isinstance(opened, Exception):
                        raise opened
                    encoder, device = opened
                    result = self.results[model, name] = Growing(self.cache, task, encoder, device, self.items)
                except XAlignError as error:
                    yield Outcome(self.names[model], name, None, error=str(error))
                    continue
                own, givers = plan(model, task, result.subsets, givers, PIECES * self.pool.slots, self.most)
                result.units = {*own}
                for unit, before in own.items():
                    shared[unit] = self.start(unit, *map(shared.get, before))
                self.waiting |= {unit for unit, before in own.items() if before}
                if not own:
                    yield result.outcome()

    def start(self, unit: Unit, *shared: Any) -> Any:
        """Start a unit; returns a reference to the vectors that it shares."""
        return self.pool.start(unit, self.scorer, self.results[unit.model, unit.task].revision, unit, *shared)

    def close(self, unit: Unit, answer: Any) -> Iterator[Outcome]:
        """Record the result of a unit; yields the outcome of its model and task after their last unit."""
        lost = isinstance(answer, WorkerLostError)
        if lost and unit in self.waiting:  # the lost worker may have run an earlier unit
            self.waiting.remove(unit)
            self.start(unit)
            return
        result = self.results[unit.model, unit.task]
        result.close(unit, *((None, str(answer), {}, {}) if lost else answer))
        if not result.units:
            yield result.outcome()


class Growing:
    """The result of a model, without its backbone, on a task's chosen subsets; only the driver writes it.

    Attributes:
        revision: Revision of the model.
        subsets: Subsets that the model can be scored on and has no score for.
        units: Units that are not done yet.
        put_back: Restores an old result if there is no new one.
    """

    def __init__(
        self, cache: SafeResultCache, task: AbsTask, encoder: XAlignEncoder, hardware: str, level: Level
    ) -> None:
        self._cache, self._task, self._hardware, self._level = cache, task, hardware, level
        self._meta, self._name = encoder.mteb_model_meta, task.metadata.name
        self.revision = str(self._meta.revision)
        self._path = cache.path_of(self._name, self._meta)
        by_subset = languages_of(task)
        self._requested = [*task.hf_subsets, *["default"] * task.is_aggregate]
        self._unfitted = tuple(encoder.unfitted({code for subset in task.hf_subsets for code in by_subset[subset]}))
        self.subsets = [subset for subset in task.hf_subsets if not encoder.unfitted(by_subset[subset])]
        self._error = "" if self.subsets else f"No subset can be scored: {encoder.refusal(self._unfitted)}."
        self.put_back = cache.keep_only_usable(task, self._meta)
        if have := self._result():
            missing = {*chain.from_iterable(have.get_missing_evaluations(task).values())}
            self.subsets = [subset for subset in self.subsets if subset in missing]
        self.units: set[Unit] = set()
        self._due, self._unsaved, self._items, self._costs = 0.0, list[TaskResult](), dict[str, Any](), dict[str, Any]()

    def _result(self) -> TaskResult | None:
        return TaskResult.from_disk(self._path) if self._path.is_file() else None

    def close(
        self, unit: Unit, result: TaskResult | None, error: str, items: dict[str, Any], costs: dict[str, Any]
    ) -> None:
        """Record the answer of :func:`score` for a unit."""
        self.units.remove(unit)
        if result is None:
            self._error = self._error or error
        else:
            self._unsaved.append(result)
            self._items |= items
            self._costs |= costs
        if not self.units or perf_counter() >= self._due:
            self.save()

    def save(self) -> None:
        """Write the results that are not written yet."""
        if not self._unsaved:
            return
        start, results, items = perf_counter(), self._unsaved, self._items
        self._unsaved, self._items = [], {}
        full = full_folder(self._path.parent)
        self._cache.hardware, self._cache.costs = self._hardware, lambda: self._costs
        with self._cache.turn(self._name, self._meta):
            before = self._result()
            if items:
                save_items(full, self._name, items)
            whole = merged([before, *results] if before else results)
            place = {subset: number for number, subset in enumerate(self._requested)}
            for rows in whole.scores.values():  # in the order of a local run, whatever unit was done first
                rows.sort(key=lambda row: place.get(row["hf_subset"], -1))
            self._cache.save_to_cache(whole, self._meta)
            if self._level != "full":
                remove_items(full, self._name)
        end = perf_counter()
        self._due = end + REST * (end - start)

    def outcome(self) -> Outcome:
        """The outcome, once all units are done."""
        stored = None if self._error else self._result()
        result = stored and of_subsets(stored, self._requested)
        fresh = bool(self.subsets) and not self._error
        return Outcome(str(self._meta.name), self._name, result, fresh, self._unfitted, self._error, self.revision)


def merged(results: Sequence[TaskResult]) -> TaskResult:
    """Merge results of one task, later ones first; by halves, because merging takes time for all subsets of both."""
    if len(results) == 1:
        return results[0]
    half = len(results) // 2
    return merged(results[:half]).merge(merged(results[half:]))
