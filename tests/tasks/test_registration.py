"""Our tasks, benchmarks and models by name, through mteb's own functions."""

from __future__ import annotations

import mteb
import pytest

from tasks import BENCHMARKS, TASKS, register_with_mteb


@pytest.fixture(autouse=True)
def registered():
    register_with_mteb()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.metadata.name)
def test_each_task_is_found_and_well_described(task):
    name = task.metadata.name
    assert type(mteb.get_task(name)) is task
    assert [one.metadata.name for one in mteb.get_tasks(tasks=[name])] == [name]
    assert task.metadata.hf_subsets
    assert task.metadata.dataset["revision"]


def test_a_model_trained_on_a_tasks_source_has_seen_the_task():
    e5 = mteb.get_model_meta("intfloat/multilingual-e5-small")
    assert e5.is_zero_shot_on([mteb.get_task("XQuAD-R")]) is False
    assert e5.is_zero_shot_on([mteb.get_task("MLQA-R")]) is True
    sources = {name: [t.metadata.name for t in TASKS if name in (t.metadata.adapted_from or ())] for name in (
        "FloresBitextMining", "Tatoeba", "XQuADRetrieval", "MLQARetrieval")}  # fmt: skip
    assert list(sources.values()) == [
        ["FloresPrecision", "IsomorphismStudy", "IsomorphismStudyRaw"],
        ["Tatoeba36", "LanguageIdentity", "Orthogonality"], ["XQuAD-R"], ["MLQA-R"],
    ]  # fmt: skip
    without = {t.metadata.name for t in TASKS if not t.metadata.adapted_from}
    assert without == {
        "LazRetrieval",
        "ProductSearchStandIn",
        "GettextPrecision",
        "OwnParallel",
        "AmazonReviewsZeroShot",
    }


def test_benchmarks_are_found():
    for name, members in BENCHMARKS.items():
        assert [task.metadata.name for task in mteb.get_benchmark(name).tasks] == list(members)


def test_mtebs_own_are_still_there_and_registering_again_changes_nothing():
    before = len(mteb.get_tasks())
    register_with_mteb.__wrapped__()
    assert len(mteb.get_tasks()) == before
    assert mteb.get_task("STS17").metadata.name == "STS17"
    assert mteb.get_benchmark("MTEB(eng, v2)").tasks
