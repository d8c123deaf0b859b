"""Units share no language unless one waits for the other, and cover what is asked for exactly once."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from xalign_models.cluster.cluster import Cluster
from xalign_models.cluster.grid import islands, shares, units
from xalign_models.errors import ModelError


def task_of(subsets, needs=()):
    metadata = SimpleNamespace(name="Task", hf_subsets_to_langscripts=subsets, revision="local-1")
    return SimpleNamespace(metadata=metadata, needs=needs, eval_splits=["test"], hf_subsets=list(subsets))


def test_subsets_of_a_language_each_are_apart():
    task = task_of({"de": ["deu-Latn"], "en": ["eng-Latn"], "fr": ["fra-Latn"]})
    assert sorted(islands(task, ["de", "fr"])) == [("de",), ("fr",)]


def test_subsets_that_share_a_language_over_several_steps_are_one():
    chain = {"a-b": ["a", "b"], "c-d": ["c", "d"], "b-c": ["b", "c"], "e-f": ["e", "f"], "f-e": ["f", "e"]}
    found = islands(task_of(chain), list(chain))
    assert sorted(map(sorted, found)) == [["a-b", "b-c", "c-d"], ["e-f", "f-e"]]


def test_what_all_subsets_need_makes_them_one():
    task = task_of({"de": ["deu-Latn"], "fr": ["fra-Latn"]}, needs=("eng-Latn",))
    assert len(islands(task, ["de", "fr"])) == 1


@pytest.mark.parametrize(("count", "most", "sizes"), [(6, 2, [2, 2, 2]), (10, 4, [4, 4, 2]), (3, 9, [3]), (1, 1, [1])])
def test_shares_are_even_and_complete(count, most, sizes):
    found = shares([str(i) for i in range(count)], most)
    assert [len(one) for one in found] == sizes
    assert [one for some in found for one in some] == [str(i) for i in range(count)]


def test_both_directions_of_a_pair_are_in_one_share():
    codes = [f"l{i}" for i in range(7)]
    pairs = {f"{a}-{b}": [a, b] for a, b in itertools.permutations(codes, 2)}
    cut = units("model", task_of(pairs), list(pairs), encoded=True, most=4)
    assert sorted(one for unit in cut for one in unit.subsets) == sorted(pairs)
    assert max(len(unit.subsets) for unit in cut) <= 4
    for unit in cut:
        assert {"-".join(reversed(one.split("-"))) for one in unit.subsets} == set(unit.subsets)
    assert len(units("model", task_of(pairs), list(pairs), encoded=False, most=4)) == 1


@pytest.mark.parametrize(("fields", "flag"), [({"cpus": 0}, "--cpus-per-task 0"), ({"gpus": -1.0}, "--gpus-per-task")])
def test_impossible_resources_are_refused(fields, flag):
    with pytest.raises(ModelError, match=flag):
        Cluster(**fields)
