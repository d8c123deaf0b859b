"""Private names of mteb: its registries have no public way to add a task or a benchmark."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

NAMES = {
    "mteb.abstasks.abstask": ("_set_seed",),
    "mteb.get_tasks": ("TASK_LIST", "_SIMILAR_TASKS", "_TASKS_REGISTRY", "_create_similar_tasks"),
    "mteb.benchmarks.get_benchmark": ("_build_aliases_registry", "_build_registry"),
}
"""Module -> the private names that the functions below use."""


def registry() -> Any:
    """Mteb's module of registered tasks, which a function of the same name hides from ``import``."""
    return import_module("mteb.get_tasks")


def task_classes() -> dict[str, Any]:
    """Mteb's registered tasks by name, to be read and changed."""
    classes: dict[str, Any] = registry()._TASKS_REGISTRY
    return classes


def add_task(name: str, kind: Any) -> None:
    """Register a task with mteb; a task of the same name is replaced."""
    old = task_classes().get(name)
    kept = tuple(kind if other is old else other for other in registry().TASK_LIST)
    registry().TASK_LIST = (*kept, kind) if old is None else kept
    task_classes()[name] = kind


def refresh() -> None:
    """Let mteb find new benchmarks, and new tasks of similar data for its zero-shot marks."""
    registry()._SIMILAR_TASKS.update(registry()._create_similar_tasks(registry().TASK_LIST))
    benchmarks: Any = import_module("mteb.benchmarks.get_benchmark")
    benchmarks._build_registry.cache_clear()
    benchmarks._build_aliases_registry.cache_clear()


@contextmanager
def unseeded() -> Iterator[None]:
    """Make tasks without seeding the process: an mteb benchmark makes thousands, and seeding torch takes 1 ms each."""
    module: Any = import_module("mteb.abstasks.abstask")
    seed = module._set_seed
    module._set_seed = lambda number: (random.Random(number), np.random.default_rng(number))
    try:
        yield
    finally:
        module._set_seed = seed
