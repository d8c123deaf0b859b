"""mteb's tasks say their languages, and score as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from tasks import register_with_mteb
from tasks.with_languages import STS22, BelebeleRetrieval, MLQARetrieval, STS22v2

META = ModelMeta.create_empty({"name": "test/recorder", "revision": "1", "similarity_fn_name": ScoringFunction.COSINE})


class Recorder(AbsEncoder):
    """An encoder of random vectors that keeps each text's language."""

    mteb_model_meta = META

    def __init__(self) -> None:
        self.seen: dict[str, str | None] = {}

    def encode(self, inputs: Any, **_: Any) -> Any:
        rows = [
            (text, lang)
            for batch in inputs
            for text, lang in zip(batch["text"], batch.get("lang", [None] * len(batch["text"])), strict=True)
        ]
        self.seen |= dict(rows)
        return np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text, _ in rows])


@pytest.fixture
def belebele(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Made-up passages in two languages."""
    from mteb.tasks.retrieval.multilingual import belebele_retrieval

    def load(name: str, **_: Any) -> DatasetDict:
        rows = [
            {"question": f"{name} q{i}", "link": f"l{i // 2}", "flores_passage": f"{name} p{i // 2}"} for i in range(8)
        ]
        return DatasetDict({"test": Dataset.from_list(rows)})

    monkeypatch.setattr(belebele_retrieval, "load_dataset", load)
    yield


def test_belebele_names_the_passages_language_first(belebele: None) -> None:
    found = {}
    for kind in (BelebeleRetrieval, BelebeleRetrieval.__bases__[1]):
        task, model = kind(), Recorder()
        task.hf_subsets = ["deu_Latn-eng_Latn"]
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0]
        found[kind] = result.scores["test"][0]["ndcg_at_10"], model.seen
    (ours, languages), (theirs, _) = found.values()
    assert ours == theirs
    assert {lang for text, lang in languages.items() if " p" in text} == {"deu-Latn"}
    assert {text.split()[0] for text in languages if " p" in text} == {"deu_Latn"}
    assert {lang for text, lang in languages.items() if " q" in text} == {"eng-Latn"}
    assert {text.split()[0] for text in languages if " q" in text} == {"eng_Latn"}


def test_sts22_names_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any, **_: Any) -> None:
        rows = [{"sentence1": f"a{i} {i}", "sentence2": f"b{i}", "score": 1 + i % 4} for i in range(12)]
        self.dataset = {subset: DatasetDict({"test": Dataset.from_list(rows)}) for subset in self.hf_subsets}
        self.data_loaded = True

    monkeypatch.setattr(STS22.__bases__[1], "load_data", load)
    scores = []
    for kind in (STS22, STS22.__bases__[1]):
        task, model = kind(), Recorder()
        task.hf_subsets = ["zh-en", "pl"]
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0]
        scores.append({row["hf_subset"]: row["cosine_pearson"] for row in result.scores["test"]})
    assert scores[0] == scores[1]
    task = STS22()
    task.hf_subsets = ["zh-en"]
    task.load_data()
    assert set(task.dataset["zh-en"]["test"]["lang1"]) == {"zho-Hans"}
    assert set(task.dataset["zh-en"]["test"]["lang2"]) == {"eng-Latn"}


def test_they_take_the_places_of_mtebs() -> None:
    register_with_mteb()
    for kind in (MLQARetrieval, BelebeleRetrieval, STS22, STS22v2):
        task = mteb.get_task(kind.metadata.name)
        assert type(task) is kind
        assert kind.metadata is kind.__bases__[1].metadata
    assert MLQARetrieval.sides == {"corpus": 0, "queries": -1}
    benchmark = mteb.get_benchmark("XAlign(LiRA)")
    assert [task.metadata.name for task in benchmark.tasks] == [
        "MLQARetrieval",
        "BelebeleRetrieval",
        "STS22",
        "LazRetrieval",
    ]
