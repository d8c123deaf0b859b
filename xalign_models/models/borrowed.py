"""Private names of mteb: its registries have no public way to add a task or a benchmark."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

NAMES = (
    "mteb.abstasks.abstask._set_seed",
    "mteb.get_tasks.TASK_LIST",
    "mteb.get_tasks._SIMILAR_TASKS",
    "mteb.get_tasks._TASKS_REGISTRY",
    "mteb.get_tasks._create_similar_tasks",
    "mteb.benchmarks.get_benchmark._build_aliases_registry.cache_clear",
    "mteb.benchmarks.get_benchmark._build_registry.cache_clear",
    "mteb.models.model_implementations.MODEL_REGISTRY",
)
"""Everything that the functions below take from mteb."""


def find(name: str) -> Any:
    """The object of a name in :data:`NAMES`; None if mteb has it no longer."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            import_module(module)
        except ImportError:
            continue
        # not the value of import_module: some functions of mteb hide the modules that they are defined in
        return reduce(lambda place, part: getattr(place, part, None), parts[length:], sys.modules[module])
    return None


def task_classes() -> dict[str, Any]:
    """Mteb's registry of tasks by name, to be read and changed."""
    registry: dict[str, Any] = find("mteb.get_tasks._TASKS_REGISTRY")
    return registry


def add_task(name: str, kind: Any) -> None:
    """Put a task into mteb's registry, under a name that is new to it or not."""
    if name not in task_classes():
        module = sys.modules["mteb.get_tasks"]
        setattr(module, "TASK_LIST", (*find("mteb.get_tasks.TASK_LIST"), kind))  # noqa: B010
    task_classes()[name] = kind


def refresh_similar_tasks() -> None:
    """Tell mteb about new tasks of similar data, for its zero-shot marks."""
    similar = find("mteb.get_tasks._create_similar_tasks")(find("mteb.get_tasks.TASK_LIST"))
    find("mteb.get_tasks._SIMILAR_TASKS").update(similar)


def add_benchmarks(benchmarks: Mapping[str, Any]) -> None:
    """Put benchmarks into mteb's registry, by name."""
    import mteb.benchmarks.benchmarks as module

    for name, benchmark in benchmarks.items():
        setattr(module, name, benchmark)
    find("mteb.benchmarks.get_benchmark._build_registry.cache_clear")()
    find("mteb.benchmarks.get_benchmark._build_aliases_registry.cache_clear")()


@contextmanager
def unseeded() -> Iterator[None]:
    """Make tasks without seeding the process: a benchmark of mteb makes thousands, and each seeds torch for 1 ms."""
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
