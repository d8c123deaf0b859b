"""The branch for mteb under docs/contributing: complete metadata, and each side under its own language."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import datasets
import mteb
import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta

from xalign_models.corpora import load
from xalign_models.languages import canonical
from xalign_models.paths import data_dir
from xalign_tasks.tatoeba36 import LANGUAGES, Tatoeba36

ROOT = Path(__file__).parents[1] / "docs" / "contributing" / "mteb" / "mteb"
MODULE = "mteb.tasks.bitext_mining.multilingual.tatoeba36_bitext_mining"


@pytest.fixture(scope="module")
def kind():
    spec = importlib.util.spec_from_file_location(MODULE, ROOT / f"{MODULE.partition('.')[2].replace('.', '/')}.py")
    sys.modules[MODULE] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.Tatoeba36BitextMining
    del sys.modules[MODULE]


class Numbers(AbsEncoder):
    """The vector of a text is that of the number in it; the languages of calls are kept."""

    def __init__(self) -> None:
        self.mteb_model_meta = ModelMeta.create_empty({"name": "org/numbers", "revision": "1"})
        self.calls: list[tuple[str, str]] = []

    def encode(self, inputs, *, hf_subset, **options):
        texts = [text for batch in inputs for text in batch["text"]]
        self.calls.append((hf_subset, texts[0].split()[0]))
        return np.eye(40)[[int(text.split()[1]) for text in texts]]


def test_the_metadata_is_complete_and_the_subsets_are_ours(kind):
    kind.metadata._validate_metadata()
    assert kind.metadata.is_filled()
    theirs, ours = (
        {tuple(map(canonical, pair)) for pair in metadata.eval_langs.values()}
        for metadata in (kind.metadata, Tatoeba36.metadata)
    )
    assert theirs == ours
    assert kind.metadata.dataset["revision"] == Tatoeba36.metadata.dataset["revision"]


def test_both_directions_are_scored_with_each_side_under_its_language(kind, monkeypatch, tmp_path):
    def rows(path, name, split, **options):
        code = name.partition("-")[0]
        order = [*range(20)] if code == "deu" else [1, 0, *range(2, 20)]  # two of the 20 Afrikaans rows are exchanged
        return datasets.Dataset.from_dict(
            {"sentence1": [f"{code} {i}" for i in order], "sentence2": [f"eng {i}" for i in range(20)]}
        )

    monkeypatch.setattr(datasets, "load_dataset", rows)
    task, model = kind(), Numbers()
    task.hf_subsets = ["afr_Latn-eng_Latn", "eng_Latn-afr_Latn", "deu_Latn-eng_Latn"]
    result = mteb.evaluate(model, task, cache=None).task_results[0]
    scores = {entry["hf_subset"]: entry["main_score"] for entry in result.scores["test"]}
    assert scores == pytest.approx({"afr_Latn-eng_Latn": 0.9, "eng_Latn-afr_Latn": 0.9, "deu_Latn-eng_Latn": 1.0})
    assert {(language[:3], word) for language, word in model.calls} == {("afr",) * 2, ("eng",) * 2, ("deu",) * 2}


@pytest.mark.realdata
def test_the_statistics_are_those_of_the_text(kind):
    if data_dir() is None:
        pytest.skip("set XALIGN_DATA to a folder that has tatoeba/")
    found = json.loads((ROOT / "descriptive_stats" / "BitextMining" / "Tatoeba36BitextMining.json").read_text())["test"]
    corpus = load("tatoeba")
    sides = [corpus.pair(language) for language in LANGUAGES]
    assert found["num_samples"] == 2 * sum(len(own) for own, _ in sides)
    assert found["number_of_characters"] == 2 * sum(len(text) for pair in sides for side in pair for text in side)
