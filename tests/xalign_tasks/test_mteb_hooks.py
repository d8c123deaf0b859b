"""mteb still has the hooks that the tasks fill."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("task", "hook"),
    [
        ("AbsTask", "calculate_descriptive_statistics"),
        ("AbsTask", "_push_dataset_to_hub"),
        ("AbsTaskSTS", "_save_task_predictions"),
        ("AbsTaskRetrieval", "_save_task_predictions"),
    ],
)
def test_mteb_still_calls_the_hooks_that_the_tasks_fill(task, hook):
    kind = getattr(importlib.import_module("mteb.abstasks"), task)
    assert hasattr(kind, hook), f"mteb's {task} has no {hook} any more"
