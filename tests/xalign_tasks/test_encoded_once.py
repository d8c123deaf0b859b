"""Tasks with a subset per pair of languages: each distinct text is encoded once, for all subsets and all models."""

from __future__ import annotations

from collections import Counter
from typing import Any

import mteb
import pytest
from datasets import Dataset, DatasetDict

from xalign_models.models.building import load_encoder
from xalign_models.models.mteb import get_task
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.plugins import Part
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore, open_store
from xalign_tasks.tatoeba36 import Tatoeba36

CODES = ("deu", "eng")


def belebele(monkeypatch: pytest.MonkeyPatch) -> Any:
    from mteb.tasks.retrieval.multilingual import belebele_retrieval

    def load(name: str, **_: Any) -> DatasetDict:
        rows = [
            {"question": f"{name} q{i}", "link": f"{i // 2}", "flores_passage": f"{name} {i // 2}"} for i in range(8)
        ]
        return DatasetDict({"test": Dataset.from_list(rows)})

    monkeypatch.setattr(belebele_retrieval, "load_dataset", load)
    task = get_task(Part("BelebeleRetrieval"))
    task.hf_subsets = [f"{a}_Latn-{b}_Latn" for a in CODES for b in CODES]
    return task, 2 * (8 + 4), 4 * (8 + 4)


def mlqa(monkeypatch: pytest.MonkeyPatch) -> Any:
    subsets = [f"{a}-{b}" for a in CODES for b in CODES]

    def load(self: Any, **_: Any) -> None:
        def split(a: str, b: str) -> dict[str, Any]:
            rows = [{"id": f"d{i}", "title": "", "text": f"{a} passage {i}"} for i in range(5)]
            questions = [{"id": f"q{i}", "text": f"{b} question {i}"} for i in range(5)]
            return {
                "corpus": Dataset.from_list(rows),
                "queries": Dataset.from_list(questions),
                "top_ranked": None,
                "relevant_docs": {f"q{i}": {f"d{i}": 1} for i in range(5)},
            }

        self.dataset = {subset: {"test": split(*subset.split("-"))} for subset in self.hf_subsets}
        self.data_loaded = True

    task = get_task(Part("MLQARetrieval"))
    monkeypatch.setattr(type(task), "load_data", load)
    task.hf_subsets = [f"{a}-{b}" for a in CODES for b in CODES]
    assert set(task.hf_subsets) == set(subsets) <= set(task.metadata.eval_langs)
    task._eval_splits = ["test"]
    return task, 2 * (5 + 5), 4 * (5 + 5)


def tatoeba(monkeypatch: pytest.MonkeyPatch) -> Any:
    from xalign_models.paths import data_dir

    root = data_dir()
    assert root is not None
    folder = root / "tatoeba" / "v1"
    folder.mkdir(parents=True)
    for code, meanings in (("deu", range(20)), ("fra", range(10, 30))):
        for side in (code, "eng"):
            (folder / f"tatoeba.{code}-eng.{side}").write_text("".join(f"{side} {one}\n" for one in meanings))
    task = Tatoeba36()
    task.hf_subsets = [f"{a}_Latn-{b}_Latn" for pair in (("deu", "eng"), ("eng", "fra")) for a, b in (pair, pair[::-1])]
    return task, 20 + 20 + 30, 4 * (20 + 20)  # a plain harness encodes both sides of every subset


@pytest.mark.slow
@pytest.mark.parametrize("make", [belebele, mlqa, tatoeba])
def test_exact_counts(make, workdir, make_model, write_text, monkeypatch):
    model = make_model(workdir / "numbers", vocab_size=105)
    task, distinct, naive = make(monkeypatch)
    seen: Counter[bytes] = Counter()
    backbone = find_spec(str(model)).backbone
    fit = write_text(workdir / "fit", 20, ("deu", "eng", "fra"))
    alignments = [None, *(AlignmentSpec(one, one, corpora=(f"own:{fit}",)) for one in ("centered", "lsar"))]
    specs = [ModelSpec(backbone, one) for one in alignments]
    encoders = [load_encoder(one, device="cpu", store=open_store()) for one in specs]
    for one, spec in zip(encoders, specs, strict=True):
        _ = Recipe(spec, one.raw).fits
    before = [one.raw.counts.encoded for one in encoders]  # of the fit
    put = EmbeddingStore.put

    def spy(self: Any, namespace: str, keys: Any, vectors: Any) -> None:
        seen.update(keys)
        put(self, namespace, keys, vectors)

    monkeypatch.setattr(EmbeddingStore, "put", spy)
    for encoder in encoders:
        mteb.evaluate(encoder, task, cache=None, show_progress_bar=False, co2_tracker=False)
    encoded = [one.raw.counts.encoded - fitted for one, fitted in zip(encoders, before, strict=True)]
    assert encoded == [distinct, 0, 0]
    assert len(seen) == distinct
    assert set(seen.values()) == {1}
    assert sum(one.raw.counts.requested for one in encoders) >= 3 * distinct
    assert naive > 1.5 * distinct
