"""Our models, tasks and benchmarks in mteb's registries, and mteb's names; only here are its private ones used."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.errors import DataError
from xalign_models.models import catalogue
from xalign_models.models.identity import trained_on
from xalign_models.models.names import trained_specs
from xalign_models.plugins import ALIGNMENTS, BACKBONES, BENCHMARKS, TASKS, Benchmark, Part, did_you_mean
from xalign_models.specs import ModelSpec

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

    from xalign_models.models.encoder import XAlignEncoder


def register_models() -> None:
    """Make every registered model, and every trained model in the default folder, known to ``mteb.get_model``.

    Opens no weights, no text and no network connection. A revision is computed when a model is loaded.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    from xalign_models.models.metadata import describe

    for name, spec in {**catalogue.specs(), **trained_specs()}.items():
        meta = describe(name, None, trained_on(spec), spec, {"spec": spec.to_dict()})
        MODEL_REGISTRY[name] = meta.model_copy(update={"loader": _load})


def _load(name: str, revision: str | None = None, device: str | None = None, **kwargs: Any) -> XAlignEncoder:
    """Mteb's loader of a model."""
    from xalign_models.models.building import load_encoder
    from xalign_models.store import open_store

    spec = ModelSpec.from_dict(kwargs["spec"]) if "spec" in kwargs else name
    return load_encoder(spec, device=device, store=open_store())


def register_with_mteb() -> None:
    """Make every registered task, benchmark and model known to mteb's own functions by name.

    Opens no text, no weights and no network connection. Later registrations need another call.
    """
    with _unseeded():
        _register(tuple(TASKS), tuple(BENCHMARKS), (*BACKBONES, *ALIGNMENTS))


@contextmanager
def _unseeded() -> Iterator[None]:
    """Make tasks without seeding the process: mteb's benchmarks make thousands, a millisecond of torch's for each."""
    from mteb.abstasks import abstask

    module: Any = abstask
    if (seed := getattr(module, "_set_seed", None)) is None:  # another release of mteb
        yield
        return
    module._set_seed = lambda number: (random.Random(number), np.random.default_rng(number))
    try:
        yield
    finally:
        module._set_seed = seed


@cache
def _register(tasks: tuple[str, ...], benchmarks: tuple[str, ...], _: tuple[str, ...]) -> None:
    import mteb.benchmarks.benchmarks as mteb_benchmarks
    from mteb.benchmarks.benchmark import Benchmark as MtebBenchmark

    from xalign_models.models.sides import with_sides

    for name in tasks:
        _register_task(name)
    module: Any = sys.modules["mteb.get_tasks"]
    module._TASKS_REGISTRY.update({name: with_sides(kind) for name, kind in module._TASKS_REGISTRY.items()})
    module._SIMILAR_TASKS.update(module._create_similar_tasks(module.TASK_LIST))  # for zero-shot marks
    for name in benchmarks:
        benchmark = BENCHMARKS.get(name)
        named = MtebBenchmark(name=name, tasks=members(benchmark), description=f"{benchmark.description}.")
        setattr(mteb_benchmarks, name, named)
    get_benchmark: Any = sys.modules["mteb.benchmarks.get_benchmark"]
    get_benchmark._build_registry.cache_clear()
    get_benchmark._build_aliases_registry.cache_clear()
    register_models()


def _register_task(name: str) -> None:
    import mteb.get_tasks  # noqa: F401  # the function of this name hides the module

    from xalign_models.models.sides import with_sides

    module: Any = sys.modules["mteb.get_tasks"]
    if name in TASKS and name not in module._TASKS_REGISTRY:
        module.TASK_LIST = (*module.TASK_LIST, TASKS.get(name))
    module._TASKS_REGISTRY[name] = TASKS.get(name) if name in TASKS else with_sides(module._TASKS_REGISTRY[name])


def get_task(part: Part) -> AbsTask:
    """A task by name, ours or mteb's, with the subsets and splits that count.

    Raises:
        DataError: The task is unknown.
    """
    import mteb

    check_task(part.task)
    _register_task(part.task)
    return mteb.get_task(part.task, hf_subsets=list(part.subsets) or None, eval_splits=list(part.splits) or None)


def members(benchmark: Benchmark) -> list[AbsTask]:
    """The tasks of a benchmark of ours."""
    return [get_task(part) for part in benchmark.parts]


def mteb_benchmark(name: str) -> list[AbsTask]:
    """The tasks of one of mteb's own benchmarks.

    Raises:
        DataError: The benchmark is unknown.
    """
    if name in _quoted("benchmarks"):  # importing mteb takes seconds
        import mteb

        with suppress(KeyError):
            return list(mteb.get_benchmark(name).tasks)
    near = did_you_mean(name, (*BENCHMARKS, *_quoted("benchmarks", "name=")))
    raise DataError(f"Unknown benchmark {name!r}.{near} Ours are {', '.join(BENCHMARKS)}; mteb's names work too.")


def check_task(name: str) -> None:
    """Check that a task exists, without importing mteb.

    Raises:
        DataError: Neither we nor mteb have a task of this name; the message suggests the nearest.
    """
    if name not in TASKS and not _has(name):
        near = did_you_mean(name, (*TASKS, *_quoted("tasks", "name=")))
        raise DataError(f"Unknown task {name!r}.{near} `xalign tasks` lists ours; mteb's names work too.")


def _has(name: str) -> bool:
    """Whether mteb has a task of this name; it is imported only if its source has the name in quotes."""
    if "mteb" not in sys.modules and name not in _quoted("tasks"):
        return False
    import mteb.get_tasks  # noqa: F401  # the function of this name hides the module

    return name in sys.modules["mteb.get_tasks"].__dict__["_TASKS_REGISTRY"]


@cache
def _quoted(folder: str, before: str = "") -> frozenset[str]:
    """Quoted strings after ``before`` in mteb's source below ``folder``, its tasks' names among them."""
    package = importlib.util.find_spec("mteb")
    root = Path(package.origin).parent / folder if package and package.origin else Path()
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")))
    return frozenset(re.findall(rf'{before}"([^"\n]+)"', text))


def described(tasks: Iterable[str]) -> dict[str, Any]:
    """Mteb's metadata of known tasks, by name."""
    import mteb.get_tasks  # noqa: F401  # the function of this name hides the module

    registered = sys.modules["mteb.get_tasks"].__dict__["_TASKS_REGISTRY"]
    kinds = {name: TASKS.get(name) if name in TASKS else registered.get(name) for name in tasks}
    return {name: task.metadata for name, task in kinds.items() if task is not None}
