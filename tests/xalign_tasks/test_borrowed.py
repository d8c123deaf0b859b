"""mteb still has the private functions that the tasks call, and the hooks that they fill."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from xalign_tasks.borrowed import retrieval_scores


def test_mteb_still_has_what_is_borrowed():
    module = importlib.import_module("mteb._evaluators.retrieval_metrics")
    assert hasattr(module, "calculate_retrieval_scores"), "mteb has no calculate_retrieval_scores any more"


def test_each_query_has_its_own_ndcg():
    results = {"q1": {"a": 0.9, "b": 0.5}, "q2": {"a": 0.9, "b": 0.5}}
    scores = retrieval_scores(results, {"q1": {"a": 1}, "q2": {"b": 1}}, cutoff=10)
    assert scores["q1"]["ndcg_cut_10"] == pytest.approx(1)
    assert scores["q2"]["ndcg_cut_10"] == pytest.approx(1 / np.log2(3), abs=1e-5)


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
