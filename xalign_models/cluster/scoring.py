"""``xalign run --engine ray``: models x tasks x subsets on the workers of a Ray cluster.

Models that share a backbone share its vectors. So the first of them on a task goes ahead and encodes; the others
follow, on the same machine if it has room, and find every vector in that machine's store. The driver alone writes
results, a unit at a time: they are whole at any moment, and a run resumes where it stopped. A unit whose worker is lost
is begun again elsewhere; a machine that gets it back has what was encoded there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.cluster.cluster import RETRIES, Cluster, use_threads
from xalign_models.cluster.grid import MOST, Unit, units
from xalign_models.errors import DataError, XAlignError, one_line
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.items import Level, full_folder, save_items
from xalign_models.evaluation.run import Outcome, identify, languages_of, make_task, remove_items, run_one
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.identity import namespace
from xalign_models.models.mteb import get_task
from xalign_models.models.names import find_spec
from xalign_models.paths import cache_dir
from xalign_models.plugins import Part, load_plugins, sources
from xalign_models.specs import digest
from xalign_models.store import open_store

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FittedModel:
    """What the driver knows of a model that a worker has fitted.

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
    """What a worker made of a unit.

    Attributes:
        result: mteb's result of the unit's subsets; None if it failed.
        error: Why, then.
        node: The worker's machine.
        items: Outcomes item by item, an array per subset.
    """

    result: TaskResult | None
    error: str = ""
    node: str = ""
    items: dict[str, Any] = field(default_factory=dict)


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
    """What :func:`xalign_models.evaluation.run.run` does, on a cluster: the same scores and files.

    They are the same bit for bit on processors of one kind, at as many threads as ``cluster.cpus``. Every machine needs
    the package and its own or a shared ``XALIGN_DATA``; a machine whose text is another's is an error.

    Args:
        models: Registered names, directories (which every machine sees) or hub ids.
        tasks: Names, or tasks with their subsets chosen.
        output: Root of the results, of the driver's machine.
        cluster: Where, and the resources of a unit.
        languages: Canonical codes, or None for all.
        items: What to keep of single items, as for :func:`xalign_models.evaluation.run.run`.
        overrides: Fields of the backbones' specs.
        most: Subsets of a unit whose texts are encoded already.
        plugins: Files and modules that the workers load, where they have them; by default those of this process.

    Yields:
        One outcome per model and task, as soon as it is there.

    Raises:
        XAlignError: What is asked for does not exist, or the cluster cannot be reached.
    """
    given, plugins = overrides or {}, sources() if plugins is None else tuple(plugins)
    paths = [str(Path(model).resolve()) if Path(model).is_dir() else model for model in models]
    names = {model: str(find_spec(model, **given).name) for model in paths}
    cache = SafeResultCache(output)
    chosen = [make_task(one, languages) if isinstance(one, str) else one for one in tasks]
    families: dict[str, list[str]] = {}
    for model in names:
        families.setdefault(_family(model, given), []).append(model)
    with cluster.connect() as ray:
        options = {**cluster.resources(ray), "max_retries": RETRIES, "retry_exceptions": False}
        look = ray.remote(**options)(_look)
        score = ray.remote(**options)(_score)
        looking = {look.remote(plugins, tuple(some), cluster, given): some for some in families.values()}
        book = _Schedule(cache, chosen, names, items, most)
        running: dict[Any, Unit] = {}
        while looking or running:
            (ref,), _ = ray.wait([*looking, *running], num_returns=1)
            try:
                found = ray.get(ref)
            except ray.exceptions.RayTaskError:  # a mistake of ours, not of the machine
                raise
            except ray.exceptions.RayError as error:
                found = f"The worker was lost {RETRIES + 1} times ({type(error).__name__})."
            if ref in looking:
                some = looking.pop(ref)
                faces = [FittedModel(error=found)] * len(some) if isinstance(found, str) else found
                yield from book.open(dict(zip(some, faces, strict=True)))
            else:
                done = running.pop(ref)
                yield from book.close(done, Scored(None, found) if isinstance(found, str) else found)
            for unit, node in book.ready():
                near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True) if node else None
                task = score.options(scheduling_strategy=near, name=f"{unit.task} {names[unit.model]}")
                running[task.remote(plugins, unit, cluster, given, items)] = unit


def _family(model: str, given: dict[str, Any]) -> str:
    try:
        return namespace(model, **given)
    except XAlignError:  # a worker will say it
        return model


class _Schedule:
    """What is to be done, what waits for what, and what is there: all that the driver has to remember."""

    def __init__(
        self, cache: SafeResultCache, tasks: Sequence[AbsTask], names: dict[str, str], items: Level, most: int
    ) -> None:
        self.cache, self.tasks, self.names, self.items, self.most = cache, tasks, names, items, most
        self._faces: dict[str, FittedModel] = {}
        self._waiting: dict[Unit, set[Unit]] = {}
        self._node: dict[Unit, str] = {}
        self._open: dict[tuple[str, str], set[Unit]] = {}
        self._errors: dict[tuple[str, str], list[str]] = {}
        self._by_name = {task.metadata.name: task for task in tasks}

    def open(self, faces: dict[str, FittedModel]) -> Iterator[Outcome]:
        """Plan the units of models that share their vectors; yields what needs none."""
        self._faces |= faces
        for task in self.tasks:
            ahead: set[Unit] = set()
            for model, face in faces.items():
                try:
                    if face.encoder is None:
                        raise DataError(face.error)
                    left = self._left(face.encoder, task)
                except XAlignError as error:
                    yield Outcome(self._name(model), task.metadata.name, None, error=str(error))
                    continue
                if not left:
                    yield self._outcome(model, task, fresh=False)
                    continue
                own = units(model, task, left, bool(ahead), self.most)
                self._waiting |= dict.fromkeys(own, ahead)
                self._open[model, task.metadata.name] = set(own)
                ahead = ahead or set(own)

    def _left(self, encoder: XAlignEncoder, task: AbsTask) -> list[str]:
        """Subsets that the model can be scored on and is not yet."""
        by_subset = languages_of(task)
        able = [one for one in task.hf_subsets if not encoder.unfitted(by_subset[one])]
        if not able:
            unfitted = encoder.unfitted({code for one in task.hf_subsets for code in by_subset[one]})
            raise DataError(f"No subset can be scored: {encoder.refusal(unfitted)}.")
        self.cache.keep_only_usable(task, encoder.mteb_model_meta)
        have = self._result(encoder, task)
        missing = (
            set(able) if have is None else {x for some in have.get_missing_evaluations(task).values() for x in some}
        )
        return [one for one in able if one in missing]

    def _result(self, encoder: XAlignEncoder, task: AbsTask) -> TaskResult | None:
        from mteb.results import TaskResult

        path = self.cache.path_of(task.metadata.name, encoder.mteb_model_meta)
        return TaskResult.from_disk(path) if path.is_file() else None

    def ready(self) -> list[tuple[Unit, str]]:
        """Units that wait for nothing, and the machine that has their vectors; each is given once."""
        free = [unit for unit, ahead in self._waiting.items() if ahead <= self._node.keys()]
        return [(unit, next((self._node[one] for one in self._waiting.pop(unit)), "")) for unit in free]

    def close(self, unit: Unit, scored: Scored) -> Iterator[Outcome]:
        """Keep what a unit gave; yields the outcome of its model on its task after the last of them."""
        self._node[unit] = scored.node
        key = (unit.model, unit.task)
        task, face = self._by_name[unit.task], self._faces[unit.model]
        assert face.encoder is not None
        if scored.result is None:
            self._errors.setdefault(key, []).append(scored.error)
        else:
            meta = face.encoder.mteb_model_meta
            full = full_folder(self.cache.path_of(unit.task, meta).parent)
            self.cache.hardware = face.hardware
            with self.cache.turn(unit.task, meta):
                before = self._result(face.encoder, task)
                if scored.items:
                    save_items(full, unit.task, scored.items)
                self.cache.save_to_cache(before.merge(scored.result) if before else scored.result, meta)
                if self.items != "full":
                    remove_items(full, unit.task)
        self._open[key].remove(unit)
        if not self._open[key]:
            yield self._outcome(unit.model, task, fresh=True)

    def _outcome(self, model: str, task: AbsTask, fresh: bool) -> Outcome:
        encoder, name = self._faces[model].encoder, task.metadata.name
        assert encoder is not None
        unfitted = encoder.unfitted({code for codes in languages_of(task).values() for code in codes})
        if errors := self._errors.get((model, name)):
            return Outcome(self._name(model), name, None, unfitted=tuple(unfitted), error=errors[0])
        return Outcome(self._name(model), name, self._result(encoder, task), fresh, tuple(unfitted))

    def _name(self, model: str) -> str:
        """A saved model's name is in its card, which a worker has read."""
        encoder = self._faces[model].encoder
        return self.names[model] if encoder is None else str(encoder.mteb_model_meta.name)


def _look(plugins: Sequence[str], models: Sequence[str], cluster: Cluster, given: dict[str, Any]) -> list[FittedModel]:
    """In a worker: fit the alignments of models that share a backbone, one after the other, and tell what they know."""
    use_threads(cluster.cpus)
    load_plugins(plugins)
    faces = []
    for model in models:
        try:
            encoder = load_encoder(model, device=cluster.device, store=open_store(), **given)
            if encoder.mteb_model_meta.revision is None:
                raise DataError(f"{model} has no revision to store results under.")
            where = hardware(encoder.raw.device)
            bare: Any = None
            known = None if encoder.languages is None else sorted(encoder.languages)
            faces.append(FittedModel(XAlignEncoder(bare, [], encoder.prompts, known, encoder.mteb_model_meta), where))
        except Exception as error:  # whatever a broken model raises is its own matter, not the others'
            faces.append(FittedModel(error=one_line(error)))
    return faces


def _score(plugins: Sequence[str], unit: Unit, cluster: Cluster, given: dict[str, Any], items: Level) -> Scored:
    """In a worker: score a unit, in a folder of its own that a second attempt on this machine finds again."""
    import ray

    use_threads(cluster.cpus)
    load_plugins(plugins)
    node = ray.get_runtime_context().get_node_id()
    task = get_task(Part(unit.task, splits=unit.splits))
    identify(task)
    task.hf_subsets = list(unit.subsets)
    if str(task.metadata.revision) != unit.data:
        return Scored(
            None, f"{unit.task}: the text on {node[:8]} is not the driver's; give all machines the same.", node
        )
    try:
        encoder = load_encoder(unit.model, device=cluster.device, store=open_store(), **given)
    except Exception as error:
        return Scored(None, one_line(error), node)
    meta = encoder.mteb_model_meta
    folder = cache_dir() / "units" / digest(meta.name, meta.revision, unit)[:32]
    cache = SafeResultCache(folder)
    outcome = run_one(encoder, task, cache, "none" if items == "none" else "full")
    kept = full_folder(cache.path_of(unit.task, meta).parent) / f"{unit.task}.npz"
    arrays: dict[str, Any] = {}
    if outcome.result is not None and kept.is_file():
        with np.load(kept) as stored:
            arrays = dict(stored)
    shutil.rmtree(folder, ignore_errors=True)
    return Scored(outcome.result, outcome.error, node, arrays)
