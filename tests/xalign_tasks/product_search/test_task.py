"""The mteb tasks, on made-up rows and, where it is there, on the stand-in."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, cast

import mteb
import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from xalign_models.errors import DataError
from xalign_models.languages import from_lazada
from xalign_tasks.product_search import LOCALES, LazRetrieval, ProductSearch, ProductSearchStandIn, fingerprint

DIM = 16


def vector(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A random vector for each text: no ties, so that every nDCG ranks alike."""
    return np.random.default_rng(list(text.encode())).normal(size=DIM).astype(np.float32)


class Recorder(AbsEncoder):
    """An encoder of random vectors that keeps what it was given."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def encode(self, inputs: Any, *, hf_subset: str, prompt_type: Any = None, **_: Any) -> Any:
        pairs = [pair for batch in inputs for pair in zip(batch["text"], batch["lang"], strict=True)]
        self.seen.setdefault((hf_subset, prompt_type.value), []).extend(pairs)
        return np.stack([vector(text) for text, _ in pairs])


META = ModelMeta(
    loader=None, name="test/recorder", revision="1", release_date="2026-01-01", languages=["eng-Latn"],
    n_parameters=0, memory_usage_mb=0, max_tokens=16, embed_dim=DIM, license="mit", open_weights=True,
    public_training_code=None, public_training_data=None, framework=["PyTorch"],
    similarity_fn_name=ScoringFunction.COSINE, use_instructions=False, training_datasets=set(),
)  # fmt: skip


def ndcg_at_10(scores: dict[str, float], grades: dict[str, int]) -> float:
    """nDCG from its definition: linear gain, 1 / log2(1 + rank)."""
    ranked = sorted(scores, key=lambda item: -scores[item])
    gains = [grades.get(item, 0) for item in ranked]

    def dcg(values: list[int]) -> float:
        return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(values[:10]))

    return dcg(gains) / dcg(sorted(grades.values(), reverse=True))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up set of all locales, for both tasks, with grades 0 to 3."""
    monkeypatch.setenv("XALIGN_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    for name in LOCALES:
        queries = [{"id": f"q{i}", "text": f"made-up {name} query {i}"} for i in range(20)]
        items = [{"id": f"i{i}", "text": f"made-up {name} title {i}"} for i in range(30)]
        items[0]["lang"] = "en"
        pairs = [
            {"query-id": f"q{q}", "corpus-id": f"i{i}", "score": int(rng.integers(0, 4))}
            for q in range(19)
            for i in rng.choice(30, 12, replace=False)
        ]
        for folder in (LazRetrieval.folder, ProductSearchStandIn.folder):
            path = tmp_path / folder / name
            (path / "qrels").mkdir(parents=True)
            for file, rows in (("queries", queries), ("corpus", items), ("qrels/test", pairs)):
                (path / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def grades_of(folder: Path) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for pair in records(folder / "qrels" / "test.jsonl"):
        if pair["score"] > 0:
            out.setdefault(pair["query-id"], {})[pair["corpus-id"]] = pair["score"]
    return out


@pytest.mark.parametrize("kind", [LazRetrieval, ProductSearchStandIn])
def test_score_is_ndcg_at_10_and_languages_reach_the_encoder(root: Path, kind: type[ProductSearch]) -> None:
    task, model = kind(), cast("Any", Recorder())
    model.mteb_model_meta = META
    evaluated = mteb.evaluate(
        model, task, cache=None, prediction_folder=root / "items", overwrite_strategy="always", show_progress_bar=False
    )
    scores = {row["hf_subset"]: row for row in evaluated.task_results[0].scores["test"]}
    items_of = np.load(root / "items" / f"{task.metadata.name}.npz")
    assert tuple(scores) == LOCALES
    for name in LOCALES:
        folder = root / kind.folder / name
        texts = {
            side: {row["id"]: row["text"] for row in records(folder / f"{file}.jsonl")}
            for side, file in (("query", "queries"), ("item", "corpus"))
        }
        grades = grades_of(folder)
        items = {key: vector(text) / np.linalg.norm(vector(text)) for key, text in texts["item"].items()}
        values = [
            ndcg_at_10({key: float(vector(texts["query"][query]) @ item) for key, item in items.items()}, relevant)
            for query, relevant in grades.items()
        ]
        assert scores[name]["main_score"] == scores[name]["ndcg_at_10"]
        assert scores[name]["main_score"] == pytest.approx(np.mean(values), abs=5.1e-6)  # mteb keeps five decimals
        np.testing.assert_allclose(items_of[name], values, atol=1e-6)
        own = from_lazada(name)
        titles = own if kind is LazRetrieval else "eng-Latn"
        assert set(model.seen[name, "query"]) == {(texts["query"][query], own) for query in grades}
        assert set(model.seen[name, "document"]) == {
            (text, "eng-Latn" if key == "i0" else titles) for key, text in texts["item"].items()
        }
        assert scores[name]["languages"] == ([own] if kind is LazRetrieval else [own, "eng-Latn"])


def test_titles_in_the_querys_language_and_in_others_are_scored_apart(root: Path) -> None:
    path = root / "lazretrieval" / "th" / "corpus.jsonl"
    items = records(path)
    for item in items[::2]:
        item["lang"] = "en"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    (root / "lazretrieval" / "vn" / "corpus.jsonl").write_text(
        "".join(json.dumps({"id": f"i{i}", "text": f"title {i}"}) + "\n" for i in range(30))
    )
    task, model = LazRetrieval(), cast("Any", Recorder())
    model.mteb_model_meta = META
    task.hf_subsets = ["th", "vn"]
    evaluated = mteb.evaluate(model, task, cache=None, overwrite_strategy="always", show_progress_bar=False)
    scores = {row["hf_subset"]: row for row in evaluated.task_results[0].scores["test"]}
    assert not {"same", "cross"} & scores["vn"].keys()  # one language
    grades = grades_of(root / "lazretrieval" / "th")
    asked = {row["id"]: vector(row["text"]) for row in records(root / "lazretrieval" / "th" / "queries.jsonl")}
    titles = {item["id"]: vector(item["text"]) / np.linalg.norm(vector(item["text"])) for item in items}
    spoken = {item["id"]: item.get("lang", "th") for item in items}
    for name, codes in (("same", {"th"}), ("cross", {"en"})):
        values = []
        for query, relevant in grades.items():
            kept = {item: grade for item, grade in relevant.items() if spoken[item] in codes}
            pool = {item: float(asked[query] @ titles[item]) for item in titles if item in kept or item not in relevant}
            values += [ndcg_at_10(pool, kept)] if kept else []
        assert scores["th"][name] == pytest.approx(np.mean(values), abs=1e-5)


def test_revision_is_the_fingerprint_and_outlives_unloading(root: Path) -> None:
    task = LazRetrieval()
    task.filter_languages(None, hf_subsets=["vn", "th"])
    revision = f"local-{fingerprint(root / 'lazretrieval')[:12]}"
    assert task.metadata.revision == "local"  # making a task opens no text
    task.identify()
    assert task.metadata.revision == revision
    task.load_data()
    assert set(task.dataset) == {"vn", "th"}
    task.unload_data()
    assert task.metadata.revision == revision
    with (root / "lazretrieval" / "bd" / "queries.jsonl").open("a") as file:
        file.write('{"id": "other", "text": "made-up other"}\n')
    task.load_data()
    assert task.metadata.revision != revision
    assert LazRetrieval.metadata.revision == "local"


@pytest.mark.parametrize("value", [None, "", "there"])
def test_missing_data_fail_at_loading_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("XALIGN_DATA", raising=False)
    else:
        monkeypatch.setenv("XALIGN_DATA", str(tmp_path) if value else "")
    task = LazRetrieval()
    with pytest.raises(DataError, match=r"XALIGN_DATA.*lazretrieval.*LiRA paper's authors; no public download"):
        task.load_data()


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / ProductSearchStandIn.folder).is_dir(),
    reason="XALIGN_DATA has no product_search_standin",
)
def test_the_stand_in_has_the_sizes_its_source_states() -> None:
    task = ProductSearchStandIn()
    task.load_data()
    pairs = {"bd": 2744, "id": 2918, "my": 2705, "pk": 3186, "th": 2205, "ph": 2692, "vn": 2341}
    keywords = {"bd": 1377, "id": 1376, "my": 1223, "pk": 1614, "th": 1026, "ph": 1297, "vn": 1035}
    for name in LOCALES:
        data = task.dataset[name]["test"]
        assert (len(data["queries"]), len(data["corpus"])) == (590 + keywords[name], 590)
        assert sum(map(len, data["relevant_docs"].values())) == pairs[name]
