"""``xalign run --engine ray``: models x tasks x subsets on the workers of a Ray cluster.

The first model on a task encodes each language once, spread over the workers; other units follow in blocks.
Each machine has its own store, and Ray's object store carries vectors between machines. The driver alone writes
results, complete at any moment. A unit whose worker is lost is repeated elsewhere.
"""

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from mteb.abstasks import AbsTask

from xalign_models.cluster.cluster import Cluster, WorkerLostError, finished, result_of
from xalign_models.cluster.schedule import MOST, FittedModel, Schedule, Scored, Unit
from xalign_models.cluster.sharing import RecordingStore, SharedVectors
from xalign_models.errors import DataError, XAlignError, one_line
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.run import Outcome, identify, make_task, run_one
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.mteb import get_task
from xalign_models.models.names import find_spec, namespace
from xalign_models.paths import cache_dir
from xalign_models.plugins import Part, sources
from xalign_models.results.items import Level, full_folder
from xalign_models.specs import digest
from xalign_models.store import open_store

PIECES = 4
"""Units that languages are spread over, for each slot of the cluster: few, and yet no worker waits long."""


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

    The arguments are those of that function, and ``cluster``, the cluster and the resources of a unit; ``most``, the
    maximum number of subsets of a unit whose texts are encoded already; and ``plugins``, files and modules that the
    workers load from their machines, by default those of this process.

    Yields:
        One outcome per model and task, as soon as it is available.
    """
    given = dict(overrides or {})
    if trusted := given.get("trust_remote_code"):
        given["trust_remote_code"] = _absolute((trusted,) if isinstance(trusted, str) else trusted)
    paths = _absolute(models)
    names = {model: str(find_spec(model, **given).name) for model in paths}
    cache = SafeResultCache(output)
    chosen = [make_task(task, languages) if isinstance(task, str) else task for task in tasks]
    families: dict[str, list[str]] = {}
    for model in names:
        families.setdefault(_family(model, given), []).append(model)
    with cluster.connect() as ray, ExitStack() as at_end:
        start = cluster.starter(ray, sources() if plugins is None else tuple(plugins), returns=2)
        by_name = {task.metadata.name: task for task in chosen}
        schedule = Schedule(cache, by_name, names, items, PIECES * cluster.slots(ray), most)
        at_end.callback(schedule.save)  # also when the run is interrupted

        def begin(_: int) -> Iterator[tuple[Any, tuple[list[str] | Unit, Any]]]:
            while families:
                family = families.pop(next(iter(families)))
                reference, vectors = start("fit", _fit, family, cluster, given)
                yield reference, (family, vectors)
            for unit, shared in schedule.ready():
                name = f"{unit.task} {names[unit.model]}"
                reference, vectors = start(name, _score, unit, cluster, given, items, *shared)
                yield reference, (unit, vectors)

        for (work, vectors), reference in finished(ray, begin):
            try:
                answer = result_of(ray, reference)
            except WorkerLostError as lost:
                if isinstance(work, Unit):
                    yield from schedule.close(work, Scored(None, str(lost)), None)
                else:
                    yield from schedule.open(dict.fromkeys(work, FittedModel(error=str(lost))), None)
            else:
                if isinstance(work, Unit):
                    yield from schedule.close(work, answer, vectors)
                else:
                    yield from schedule.open(dict(zip(work, answer, strict=True)), vectors)


def _absolute(models: Iterable[str]) -> list[str]:
    return [str(Path(model).resolve()) if Path(model).is_dir() else model for model in models]


def _family(model: str, given: dict[str, Any]) -> str:
    """A key that models with the same vectors share."""
    try:
        return namespace(model, **given)
    except XAlignError:  # a worker reports it
        return model


def _fit(models: Sequence[str], cluster: Cluster, given: dict[str, Any]) -> tuple[list[FittedModel], SharedVectors]:
    """In a worker: fit the alignments of models that share a backbone."""
    store: Any = RecordingStore(open_store())
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
        except Exception as error:  # a broken model may raise anything and must not stop the others
            fitted.append(FittedModel(error=one_line(error)))
    return fitted, store.shared(_node())


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _score(
    unit: Unit, cluster: Cluster, given: dict[str, Any], items: Level, *shared: SharedVectors
) -> tuple[Scored, SharedVectors | None]:
    """In a worker: score a unit with the vectors of other machines; returns those that it encoded first, too."""
    store, node = open_store(), _node()
    for vectors in shared:
        if vectors.node != node:
            vectors.copy_to(store)
    recording = RecordingStore(store)
    scored = _scored(unit, cluster, given, items, recording if unit.gives else store, node)
    return scored, recording.shared(node) if unit.gives else None


def _scored(unit: Unit, cluster: Cluster, given: dict[str, Any], items: Level, store: Any, node: str) -> Scored:
    """Score a unit in a folder of its own, where a second attempt on this machine resumes."""
    task = get_task(Part(unit.task, splits=unit.splits))
    identify(task)
    task.hf_subsets = list(unit.subsets)
    if str(task.metadata.revision) != unit.data:
        return Scored(None, f"{unit.task}: the text on {node[:8]} is not the driver's; give all machines one text.")
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
