"""Registers models, tasks and benchmarks with mteb, and finds mteb's own by name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, PluginError
from xalign_models.models import borrowed
from xalign_models.models.metadata import describe, trained_on
from xalign_models.models.names import directory_of, known_specs
from xalign_models.plugins import ALIGNMENTS, BACKBONES, BENCHMARKS, TASKS, Part, code_digest, did_you_mean

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

_registered: list[Any] = []
"""Registrations and trained models at the last call to :func:`register_with_mteb`."""
MANY = 1000
"""With more subsets, a task in mteb's form of a benchmark keeps only pairs with English: its tables list them all."""


def register_models() -> None:
    """Make every registered model, and every trained model in the default folder, known to ``mteb.get_model``."""
    from mteb.models.model_implementations import MODEL_REGISTRY

    from xalign_models.models.registered import RegisteredMeta

    for name, spec in known_specs().items():
        meta = describe(name, None, trained_on(spec), spec, {"spec": spec.to_dict()})
        MODEL_REGISTRY[name] = RegisteredMeta.of(meta)


def register_with_mteb() -> None:
    """Make every registered task, benchmark and model known to mteb's own functions by name.

    Opens no text, no weights and no network connection. Later registrations and trained models need another call. In
    mteb's form of a benchmark, tasks with very many pairs, such as FLORES, keep only the pairs with English; ``xalign
    run --benchmark`` has all pairs.

    Raises:
        PluginError: A plug-in's task or benchmark has the name of one of mteb's.
    """
    trained = {folder: folder.stat().st_mtime_ns for folder in directory_of("").glob("*") if folder.exists()}
    state = [*(registry.places() for registry in (TASKS, BENCHMARKS, BACKBONES, ALIGNMENTS)), trained]
    if state != _registered:
        _check_names(TASKS, BENCHMARKS)
        with borrowed.unseeded():
            if state[:-1] != _registered[:-1]:
                _register()
            register_models()
        _registered[:] = state


def _check_names(tasks: Iterable[str] = (), benchmarks: Iterable[str] = ()) -> None:
    """Refuse plug-ins' tasks and benchmarks that would replace mteb's own of the same name."""
    import mteb

    names = [*benchmarks]
    all_of_mteb = mteb.get_benchmarks() if names else ()  # which makes thousands of tasks
    others = {alias for benchmark in all_of_mteb for alias in benchmark.aliases or ()}
    taken = [f"benchmark {name!r}" for name in names if name in others or not absent("benchmarks", [name])]
    known = borrowed.task_classes()
    taken += [
        f"task {name!r}"
        for name in tasks
        if name in known and known[name].__module__.startswith("mteb.") and code_digest(TASKS[name])
    ]
    if taken:
        raise PluginError(f"{taken[0]} cannot be registered: mteb already uses this name; choose another.")


def _register() -> None:
    import mteb.benchmarks.benchmarks as mteb_benchmarks
    from mteb.benchmarks.benchmark import Benchmark as MtebBenchmark

    from xalign_models.models.sides import with_sides

    for name in TASKS:
        _register_task(name)
    for name, kind in [*borrowed.task_classes().items()]:
        if (sided := with_sides(kind)) is not kind:
            borrowed.add_task(name, sided)
    for name in BENCHMARKS:
        members = tasks_of(name)
        for task in members:
            if len(task.hf_subsets) > MANY:
                spoken = task.metadata.hf_subsets_to_langscripts
                task.hf_subsets = [subset for subset in task.hf_subsets if ENGLISH in spoken[subset]]
        description = f"{BENCHMARKS[name].description}."
        named = MtebBenchmark(name=name, tasks=members, description=description, language_view="all")
        setattr(mteb_benchmarks, name, named)
    borrowed.refresh()


def _register_task(name: str) -> None:
    from xalign_models.models.sides import with_sides

    borrowed.add_task(name, TASKS[name] if name in TASKS else with_sides(borrowed.task_classes()[name]))


def get_task(part: Part) -> AbsTask:
    """A task by name, ours or mteb's, with the subsets and splits of a benchmark's part.

    Raises:
        DataError: The task is unknown.
        PluginError: A plug-in's task has the name of one of mteb's.
    """
    import mteb

    check_task(part.task)
    if part.task in TASKS:
        _check_names([part.task])
    _register_task(part.task)
    return mteb.get_task(part.task, hf_subsets=list(part.subsets) or None, eval_splits=list(part.splits) or None)


def tasks_of(name: str) -> list[AbsTask]:
    """The tasks of a benchmark, ours or mteb's.

    Raises:
        DataError: The benchmark is unknown.
        PluginError: A plug-in's benchmark or task has the name of one of mteb's.
    """
    if name in BENCHMARKS:
        _check_names((), [name])
        return [get_task(part) for part in BENCHMARKS[name].parts]
    if name in _quoted("benchmarks"):  # importing mteb takes seconds
        import mteb

        with suppress(KeyError):
            return list(mteb.get_benchmark(name).tasks)
    near = did_you_mean(name, (*BENCHMARKS, *_quoted("benchmarks", "name=")))
    raise DataError(f"Unknown benchmark {name!r}.{near} Ours are {', '.join(BENCHMARKS)}; mteb's names work too.")


def check_task(name: str) -> None:
    """Check that a task exists, without importing mteb.

    Raises:
        DataError: Neither xalign nor mteb has a task of this name; the message suggests the nearest.
    """
    known = name in TASKS or (
        ("mteb" in sys.modules or name in _quoted("tasks"))  # importing mteb takes seconds
        and name in borrowed.task_classes()
    )
    if not known:
        near = did_you_mean(name, (*TASKS, *_quoted("tasks", "name=")))
        raise DataError(f"Unknown task {name!r}.{near} `xalign tasks` lists ours; mteb's names work too.")


def absent(kind: str, names: Iterable[str]) -> list[str]:
    """Names of models, tasks or benchmarks that mteb's source lacks, sorted; registered ones do not count."""
    return sorted({*names} - _quoted(kind, "name="))


@cache
def _quoted(folder: str, before: str = "") -> frozenset[str]:
    """Quoted strings after ``before`` in mteb's source below ``folder``, including the names of its tasks."""
    package = importlib.util.find_spec("mteb")
    root = Path(package.origin).parent / folder if package and package.origin else Path()
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")))
    return frozenset(re.findall(rf'{before}"([^"\n]+)"', text))


def described(tasks: Iterable[str]) -> dict[str, Any]:
    """Mteb's metadata of known tasks, by name."""
    registered = borrowed.task_classes()
    kinds = {name: TASKS[name] if name in TASKS else registered.get(name) for name in tasks}
    return {name: task.metadata for name, task in kinds.items() if task is not None}
