"""Our tasks, benchmarks and analyses by name: lists that import none of them, and mteb's own functions."""

from __future__ import annotations

import random
import subprocess

import mteb
import numpy as np
import pytest

from xalign_models.models.borrowed import unseeded
from xalign_models.models.mteb import _registered, tasks_of
from xalign_models.plugins import BENCHMARKS, TASKS, task_facts
from xalign_tasks import register_with_mteb

MTEBS_OWN = {"xalign_tasks.mteb_bitext"}


@pytest.fixture(scope="module")
def registered():
    register_with_mteb()


@pytest.mark.parametrize("name", TASKS)
def test_what_lists_show_of_a_task_is_what_its_class_says(name):
    listed, true = dict(TASKS.facts(name)), task_facts(TASKS[name])
    if TASKS[name].__module__ in MTEBS_OWN:  # mteb describes them
        assert listed.pop("description").startswith(f"mteb's {name}")
        del true["description"]
    assert listed == true
    assert TASKS[name].metadata.name == name


def test_mtebs_benchmark_has_the_pairs_of_flores_with_english(registered):
    tasks = {task.metadata.name: task for task in mteb.get_benchmark("XAlign(parallel)").tasks}
    pairs = tasks["FloresPrecision"].hf_subsets
    assert len(pairs) == len(set(pairs)) == 2 * 203
    assert all("eng_Latn" in pair.split("-") for pair in pairs)
    assert len(tasks["XQuAD-R"].hf_subsets) == 11
    assert len(tasks_of("XAlign(parallel)")[0].hf_subsets) == 204 * 203


def test_a_model_trained_on_a_tasks_source_has_seen_the_task(registered):
    classes = [cls for _, cls in TASKS.items() if cls.__module__ not in MTEBS_OWN]
    e5 = mteb.get_model_meta("intfloat/multilingual-e5-small")
    assert e5.is_zero_shot_on([mteb.get_task("XQuAD-R")]) is False
    assert e5.is_zero_shot_on([mteb.get_task("MLQA-R")]) is True
    sources = {
        name: [t.metadata.name for t in classes if name in (t.metadata.adapted_from or ())]
        for name in ("FloresBitextMining", "Tatoeba", "XQuADRetrieval", "MLQARetrieval")
    }
    assert list(sources.values()) == [
        ["FloresPrecision", "IsomorphismStudy", "IsomorphismStudyRaw", "FloresMining"],
        ["Tatoeba36", "LanguageIdentity", "Orthogonality"],
        ["XQuAD-R", "XQuAD-R-as-published"],
        ["MLQA-R"],
    ]
    without = {t.metadata.name for t in classes if not t.metadata.adapted_from}
    assert without == {
        "LazRetrieval",
        "ProductSearchStandIn",
        "GettextPrecision",
        "OwnParallel",
        "OwnRetrieval",
        "UDHRPrecision",
        "AmazonReviewsZeroShot",
    }


@pytest.mark.parametrize("name", TASKS)
def test_mteb_finds_each_task(registered, name):
    assert type(mteb.get_task(name)) is TASKS[name]
    assert [task.metadata.name for task in mteb.get_tasks(tasks=[name])] == [name]
    assert mteb.get_task(name).metadata.dataset["revision"]


def test_mteb_finds_each_benchmark(registered):
    for name in BENCHMARKS:
        assert [task.metadata.name for task in mteb.get_benchmark(name).tasks] == [
            part.task for part in BENCHMARKS[name].parts
        ]


def test_registering_leaves_the_seeds_of_the_process_alone():
    import torch

    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())  # noqa: NPY002
    _registered.clear()
    register_with_mteb()
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    task = mteb.get_task("STS17")
    assert task.np_rng.random() == np.random.default_rng(task.seed).random()


def test_mtebs_own_are_still_there_and_registering_again_changes_nothing(registered):
    with unseeded():  # sooner
        before = len(mteb.get_tasks())
        register_with_mteb()
        assert len(mteb.get_tasks()) == before
    assert mteb.get_task("STS17").metadata.name == "STS17"
    assert mteb.get_benchmark("MTEB(eng, v2)").tasks


LOOK = """
import os, sys
import datasets.config, huggingface_hub.constants
datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = False
places = os.path.realpath(os.environ["XALIGN_DATA"]), os.path.realpath(os.environ["XALIGN_OWN"])
seen = []
def watch(event, arguments):
    if event in {"open", "os.listdir", "os.scandir"} and isinstance(arguments[0], str):
        if os.path.realpath(arguments[0]).startswith(places):
            seen.append(arguments[0])
    if event in {"socket.connect", "socket.getaddrinfo"}:
        seen.append(event)
sys.addaudithook(watch)
import mteb, xalign_tasks
xalign_tasks.register_with_mteb()
mteb.get_tasks(tasks=["FloresPrecision", "OwnParallel"])
print(seen)
open(places[0] + "/flores200_dataset/devtest/deu_Latn.devtest").close()
print(len(seen))
"""


def test_registering_opens_no_text_and_no_socket(tmp_path, write_text, monkeypatch, python):
    monkeypatch.setenv("XALIGN_OWN", str(write_text(tmp_path / "own", 3)))
    monkeypatch.setenv("XALIGN_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    text = tmp_path / "data" / "flores200_dataset" / "devtest"
    text.mkdir(parents=True)
    for code in ("deu_Latn", "eng_Latn"):
        (text / f"{code}.devtest").write_text("a\nb\n")
    done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "1"]
