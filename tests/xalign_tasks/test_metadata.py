"""Metadata and descriptive statistics of our tasks, as mteb asks for them."""

from __future__ import annotations

import importlib

import pytest

from xalign_models.errors import XAlignError
from xalign_models.plugins import TASKS
from xalign_tasks.own_parallel import OwnParallel

YOURS = {"OwnParallel", "OwnRetrieval"}
"""Tasks on the user's text, whose date, place and author nobody else knows."""


@pytest.mark.parametrize("name", sorted({*TASKS} - YOURS))
def test_the_metadata_are_filled(name):
    metadata = TASKS[name].metadata
    assert metadata.is_filled()
    assert metadata.bibtex_citation.strip().startswith("@")
    assert metadata.date[0] <= metadata.date[1]


def test_the_statistics_are_of_the_texts(workdir):
    folder = workdir / "own"
    folder.mkdir()
    rows = {"deu": ["eins", "zwei", "zwei"], "eng": ["one", "two", "three!"], "fra": ["un", "deux", "trois"]}
    for code, texts in rows.items():
        (folder / f"{code}.txt").write_text("\n".join(texts) + "\n")
    found = OwnParallel(path=folder).calculate_descriptive_statistics()["test"]
    pair = found["hf_subset_descriptive_stats"]["deu_Latn-eng_Latn"]
    both = rows["deu"] + rows["eng"]
    assert pair == {
        "num_samples": 6,
        "number_of_characters": sum(map(len, both)),
        "min_text_length": 3,
        "average_text_length": sum(map(len, both)) / 6,
        "max_text_length": 6,
        "unique_texts": 5,
    }
    assert len(found["hf_subset_descriptive_stats"]) == 6
    assert found["num_samples"] == 9


@pytest.mark.parametrize(("name", "text"), [("NTREXPrecision", "ntrex"), ("UDHRPrecision", "udhr")])
def test_text_that_is_not_at_hand_is_named(name, text, monkeypatch, workdir):
    monkeypatch.delenv("XALIGN_DATA", raising=False)
    with pytest.raises(XAlignError, match=f"(?i){text}"):
        TASKS[name]().calculate_descriptive_statistics()


def test_a_changed_task_of_a_plug_in_is_another_revision(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    revisions = []
    for number, code in enumerate(("", "", "# changed\n")):
        file = tmp_path / f"words{number}.py"
        file.write_text(f"{code}from xalign_tasks.own_parallel import OwnParallel\nclass Words(OwnParallel): pass\n")
        task = importlib.import_module(file.stem).Words()
        task.stamp("f" * 64)
        revisions.append(task.metadata.revision)
    assert revisions[0] == revisions[1] != revisions[2]
    ours = OwnParallel()
    ours.stamp("f" * 64)
    assert ours.metadata.revision == "local-ffffffffffff"
