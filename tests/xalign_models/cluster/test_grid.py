"""Units bring each language once, wait for those that bring theirs, and cover what is asked for exactly once."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from xalign_models.cluster.cluster import Cluster
from xalign_models.cluster.schedule import plan
from xalign_models.errors import ModelError
from xalign_models.evaluation.run import languages_of


def task_of(subsets, needs=()):
    metadata = SimpleNamespace(name="Task", hf_subsets_to_langscripts=subsets, revision="local-1")
    return SimpleNamespace(metadata=metadata, needs=needs, eval_splits=["test"], hf_subsets=list(subsets))


def pairs_of(codes):
    return {f"{a}-{b}": [a, b] for a, b in itertools.permutations(codes, 2)}


CODES = [f"l{i:03}" for i in range(9)]
TASKS = {
    "a language each": task_of({code: [code] for code in CODES}),
    "all pairs": task_of(pairs_of(CODES)),
    "all pairs of an even number": task_of(pairs_of(CODES[:8])),
    "pairs with one language": task_of({f"{code}-l000": [code, "l000"] for code in CODES[1:]}),
    "a chain": task_of({f"{a}-{b}": [a, b] for a, b in itertools.pairwise(CODES)}),
    "what all subsets need": task_of({code: [code] for code in CODES[1:]}, needs=("l000",)),
    "one subset": task_of({"a-b": ["a", "b"]}),
    "many subsets of one language": task_of({f"part {i}": ["l000"] for i in range(200)}),
}


@pytest.mark.parametrize("pieces", [1, 3, 99])
@pytest.mark.parametrize("most", [2, 8, 2048])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_each_subset_is_scored_and_each_language_encoded_once(task, most, pieces):
    by_subset = languages_of(task)
    planned, givers = plan("model", task, task.hf_subsets, {}, pieces, most)
    scored = [subset for unit in planned for subset in unit.subsets]
    assert sorted(scored) == sorted(task.hf_subsets)
    given = [language for unit in planned for language in unit.gives]
    assert sorted(given) == sorted(set().union(*by_subset.values()))
    assert givers == {language: unit for unit in planned for language in unit.gives}
    before = set()
    for unit, ahead in planned.items():
        assert ahead <= before  # so that there is always something to do
        needed = set().union(*(by_subset[subset] for subset in unit.subsets))
        assert needed == {*unit.gives} | needed & set().union(*(one.gives for one in ahead))
        assert all(needed & {*one.gives} for one in ahead)  # it waits for nothing else
        before.add(unit)


def test_all_pairs_are_encoded_on_the_whole_cluster_at_once():
    task = task_of(pairs_of([f"l{i:03}" for i in range(204)]))
    planned, _ = plan("model", task, task.hf_subsets, {}, pieces=32)
    first = [unit for unit, ahead in planned.items() if not ahead]
    assert len(first) == 32
    assert {len(unit.gives) for unit in first} == {6, 8}
    rest = [unit for unit in planned if not unit.gives]
    assert len(planned) == len(first) + len(rest)
    assert max(len(unit.subsets) for unit in rest) <= 2048
    read = [len({code for subset in unit.subsets for code in subset.split("-")}) for unit in rest]
    assert sorted(read)[len(read) // 2] <= 100  # rows of pairs would read all 204 languages each


def test_a_second_model_waits_for_the_first_ones_languages():
    task = TASKS["all pairs"]
    leading, givers = plan("one", task, task.hf_subsets[:20], {}, 4, 2)
    following, _ = plan("two", task, task.hf_subsets, givers, 4, 2)
    known = {language for unit in leading for language in unit.gives}
    assert {language for unit in following for language in unit.gives} == {*CODES} - known
    assert all(ahead for unit, ahead in following.items())


def test_no_unit_is_empty_where_all_subsets_have_one_language():
    task = TASKS["many subsets of one language"]
    _, givers = plan("one", task, task.hf_subsets[:1], {}, pieces=4)
    following, _ = plan("two", task, task.hf_subsets, givers, pieces=4)
    assert [len(unit.subsets) for unit in following] == [200]


@pytest.mark.parametrize(("count", "most"), [(9, 128), (40, 128), (40, 500), (13, 2048)])
def test_units_without_new_languages_are_even(count, most):
    task = task_of(pairs_of([f"l{i:03}" for i in range(count)]))
    planned, _ = plan("model", task, task.hf_subsets, {}, pieces=4, most=most)
    sizes = [len(unit.subsets) for unit in planned if not unit.gives]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 2  # a pair and its reverse


def test_both_directions_of_a_pair_are_in_one_unit():
    planned, _ = plan("model", TASKS["all pairs"], TASKS["all pairs"].hf_subsets, {}, pieces=99, most=4)
    for unit in planned:
        assert {"-".join(reversed(one.split("-"))) for one in unit.subsets} == set(unit.subsets)


@pytest.mark.parametrize(("fields", "flag"), [({"cpus": 0}, "--cpus-per-task 0"), ({"gpus": -1.0}, "--gpus-per-task")])
def test_impossible_resources_are_refused(fields, flag):
    with pytest.raises(ModelError, match=flag):
        Cluster(**fields)
