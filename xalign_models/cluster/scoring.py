"""``xalign run --engine ray``: models x tasks x subsets on the workers of a Ray cluster.

Models that share a backbone share its vectors. The first of them on a task encodes, a language here and another there;
what needs no more encoding follows in blocks. Each machine has a store of its own. What a unit encoded is in Ray's
object store, too: a unit that needs it runs where most of it is, and the rest comes over the network. The driver alone
writes results. They are whole at any moment, and a run resumes where it stopped: a killed driver loses the units of the
last seconds. A unit whose worker is lost is begun again elsewhere; a machine that gets it back has what was encoded
there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.cluster.carrying import Carried, Recorder
from xalign_models.cluster.cluster import RETRIES, Cluster, use_threads
from xalign_models.cluster.grid import MOST, Unit
from xalign_models.cluster.schedule import FittedModel, Schedule, Scored
from xalign_models.errors import DataError, XAlignError, one_line
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.run import Outcome, identify, make_task, run_one
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.identity import namespace
from xalign_models.models.mteb import get_task
from xalign_models.models.names import find_spec
from xalign_models.paths import cache_dir
from xalign_models.plugins import Part, load_plugins, sources
from xalign_models.results.items import Level, full_folder
from xalign_models.specs import digest
from xalign_models.store import open_store

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

logger = logging.getLogger(__name__)

PIECES = 4
"""Units that languages are spread over, for each that can run at once: few enough, and yet none has to wait long."""


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
    chosen = [make_task(task, languages) if isinstance(task, str) else task for task in tasks]
    families: dict[str, list[str]] = {}
    for model in names:
        families.setdefault(_family(model, given), []).append(model)
    with cluster.connect() as ray, ExitStack() as at_end:
        options = {**cluster.resources(ray), "max_retries": RETRIES, "retry_exceptions": False, "num_returns": 2}
        look = ray.remote(**options)(_look)
        score = ray.remote(**options)(_score)
        looking: dict[Any, tuple[list[str], Any]] = {}
        for specs in families.values():
            ref, vectors = look.remote(plugins, tuple(specs), cluster, given)
            looking[ref] = specs, vectors
        pieces = PIECES * max(1, int(ray.cluster_resources().get("CPU", 1)) // cluster.cpus)
        schedule = Schedule(cache, chosen, names, items, pieces, most)
        at_end.callback(schedule.save)  # of a run that is stopped, too
        running: dict[Any, tuple[Unit, Any]] = {}
        while looking or running:
            (ref,), _ = ray.wait([*looking, *running], num_returns=1)
            try:
                answer = ray.get(ref)
            except ray.exceptions.RayTaskError:  # a mistake of ours, not of the machine
                raise
            except ray.exceptions.RayError as error:
                answer = f"The worker was lost {RETRIES + 1} times ({type(error).__name__})."
            lost = isinstance(answer, str)
            if ref in looking:
                specs, vectors = looking.pop(ref)
                fitted = [FittedModel(error=answer)] * len(specs) if lost else answer
                yield from schedule.open(dict(zip(specs, fitted, strict=True)), None if lost else vectors)
            else:
                done, vectors = running.pop(ref)
                yield from schedule.close(done, Scored(None, answer) if lost else answer, None if lost else vectors)
            for unit, shared in schedule.ready():
                task = score.options(name=f"{unit.task} {names[unit.model]}")
                ref, vectors = task.remote(plugins, unit, cluster, given, items, *shared)
                running[ref] = unit, vectors


def _family(model: str, given: dict[str, Any]) -> str:
    try:
        return namespace(model, **given)
    except XAlignError:  # a worker will say it
        return model


def _look(
    plugins: Sequence[str], models: Sequence[str], cluster: Cluster, given: dict[str, Any]
) -> tuple[list[FittedModel], Carried]:
    """In a worker: fit the alignments of models that share a backbone, one after the other, and tell what they know."""
    use_threads(cluster.cpus)
    load_plugins(plugins)
    store: Any = Recorder(open_store())
    fitted = []
    for model in models:
        try:
            encoder = load_encoder(model, device=cluster.device, store=store, **given)
            if encoder.mteb_model_meta.revision is None:
                raise DataError(f"{model} has no revision to store results under.")
            where = hardware(encoder.raw.device)
            bare: Any = None
            known = None if encoder.languages is None else sorted(encoder.languages)
            fitted.append(FittedModel(XAlignEncoder(bare, [], encoder.prompts, known, encoder.mteb_model_meta), where))
        except Exception as error:  # whatever a broken model raises is its own matter, not the others'
            fitted.append(FittedModel(error=one_line(error)))
    return fitted, store.carried(_node())


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _score(
    plugins: Sequence[str], unit: Unit, cluster: Cluster, given: dict[str, Any], items: Level, *shared: Carried
) -> tuple[Scored, Carried | None]:
    """In a worker: score a unit, after taking over vectors that other machines encoded; those that it gives."""
    use_threads(cluster.cpus)
    load_plugins(plugins)
    store, node = open_store(), _node()
    for carried in shared:
        if carried.node != node:
            carried.unpack(store)
    recorder = Recorder(store)
    scored = _scored(unit, cluster, given, items, recorder if unit.gives else store, node)
    return scored, recorder.carried(node) if unit.gives else None


def _scored(unit: Unit, cluster: Cluster, given: dict[str, Any], items: Level, store: Any, node: str) -> Scored:
    """The unit's results, from a folder of its own that a second attempt on this machine finds again."""
    task = get_task(Part(unit.task, splits=unit.splits))
    identify(task)
    task.hf_subsets = list(unit.subsets)
    if str(task.metadata.revision) != unit.data:
        return Scored(None, f"{unit.task}: the text on {node[:8]} is not the driver's; give all machines the same.")
    try:
        encoder = load_encoder(unit.model, device=cluster.device, store=store, **given)
    except Exception as error:
        return Scored(None, one_line(error))
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
    return Scored(outcome.result, outcome.error, arrays)
