"""Eight aligned models of one backbone on one real corpus: ours encodes every text once, plain mteb once per model."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mteb", reason="mteb is not installed")  # GPU machines have torch and its like alone
import mteb
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskBitextMining
from mteb.models.abs_encoder import AbsEncoder
from sentence_transformers import SentenceTransformer

from tasks.precision import PrecisionTask, precision_metadata
from xalign_models import assets, catalogue, corpora, registry
from xalign_models.corpora import Corpus
from xalign_models.errors import DataError
from xalign_models.languages import canonical
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore

BACKBONE = "multilingual-e5-small"


def models() -> list[ModelSpec]:
    """The unaligned backbone and seven alignments, fitted on the fit half of the embedded corpus."""
    backbone = catalogue.BACKBONES[BACKBONE]
    alignments = [
        *catalogue.ALIGNMENTS["gettext"].values(),
        AlignmentSpec("lsar-3", "lsar", (("rank", 3),), ("gettext:fit",)),
    ]
    return [ModelSpec(backbone), *(ModelSpec(backbone, alignment, "gettext") for alignment in alignments)]


def without_ties(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Rows whose text no other row has, in any language and up to what a tokenizer sees.

    Two candidates with equal vectors are told apart by their position in mteb and not at all in ours, so that scores
    could differ where they should.
    """
    seen: set[tuple[str, str]] = set()
    kept = []
    for row in zip(*columns.values(), strict=True):
        forms = {
            (one, " ".join(unicodedata.normalize("NFKC", text).split())) for one, text in zip(columns, row, strict=True)
        }
        if not forms & seen:
            kept.append(row)
            seen |= forms
    return {one: list(texts) for one, texts in zip(columns, zip(*kept, strict=True), strict=True)}


@pytest.fixture(scope="module")
def columns(pytestconfig) -> dict[str, list[str]]:
    """The corpus: rows that mean the same in a few languages."""
    for asset in (BACKBONE, "gettext"):
        if assets.where(asset) is None:
            pytest.skip(f"the asset is not installed; run: xalign assets install {asset}")
    chosen = sorted(canonical(one) for one in pytestconfig.getoption("--bench-languages").split())
    try:
        found = corpora.load(pytestconfig.getoption("--bench-corpus"), local=True).parallel(chosen)
    except DataError as error:
        pytest.skip(str(error))
    return without_ties({one: texts[: pytestconfig.getoption("--bench-rows")] for one, texts in found.items()})


def metadata(name: str, columns: dict[str, list[str]]) -> Any:
    return precision_metadata(
        name, columns, "For the benchmark.", dataset={"path": "local/bench", "revision": "bench"}, eval_splits=["test"]
    )


def our_task(columns: dict[str, list[str]]) -> PrecisionTask:
    """Our protocol on these rows."""

    class OurBench(PrecisionTask):
        corpus_name = "bench"

        def local_corpus(self) -> Corpus:
            self._corpus = Corpus(
                "bench", "parallel", (), tuple(columns), columns.__getitem__, lambda one: str(len(columns[one]))
            )
            return self._corpus

    OurBench.metadata = metadata("OurBench", columns)
    return OurBench()


def plain_task(columns: dict[str, list[str]]) -> AbsTaskBitextMining:
    """mteb's own multi-parallel task on the same rows: its loop, its search, its metrics."""

    class PlainBench(AbsTaskBitextMining):
        parallel_subsets = True

        def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
            rows = {one.replace("-", "_"): texts for one, texts in columns.items()}
            self.dataset = DatasetDict(test=Dataset.from_dict(rows))
            self.data_loaded = True

    PlainBench.metadata = metadata("PlainBench", columns).model_copy(update={"main_score": "accuracy"})
    return PlainBench()


class PlainEncoder(AbsEncoder):
    """A SentenceTransformer under mteb, told the language of a column by the column's name: no more than it needs."""

    def __init__(self, model: SentenceTransformer, meta: Any) -> None:
        self.model, self.mteb_model_meta = model, meta
        self.sentences = 0

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs: Any) -> np.ndarray:
        language = canonical(hf_subset)
        texts = [{"text": text, "lang": language} for batch in inputs for text in batch["text"]]
        self.sentences += len(texts)
        return self.model.encode(texts, show_progress_bar=False, batch_size=kwargs.get("batch_size", 32))


def evaluate(model: Any, task: Any, metric: str) -> dict[str, float]:
    """The metric by language pair."""
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False).task_results[0]
    return {one["hf_subset"]: one[metric] for one in result.scores["test"]}


@pytest.fixture
def stores(tmp_path) -> Iterator[tuple[EmbeddingStore, EmbeddingStore]]:
    """One for fitting, and an empty one for what is timed."""
    with EmbeddingStore(tmp_path / "fit", 1 << 28) as fit, EmbeddingStore(tmp_path / "bench", 1 << 28) as fresh:
        yield fit, fresh


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_eight_models(columns, benchmark, note, say, stores, monkeypatch):
    specs = models()
    assert len(specs) == len({spec.name for spec in specs}) == 8
    fit_store, store = stores
    # Both sides get the same fitted alignments, and neither is timed while it fits or loads weights.
    monkeypatch.setattr(registry, "_default_store", lambda: fit_store)
    for spec in specs:
        registry.fitted(spec, registry.raw_encoder(spec.backbone, "cpu", fit_store))
    encoders = [registry.load_encoder(spec, device="cpu", store=store) for spec in specs]
    _ = encoders[0].raw.modules  # one copy of the weights, which all eight share

    def ours() -> list[dict[str, float]]:
        return [evaluate(encoder, our_task(columns), "precision_at_1") for encoder in encoders]

    scores = benchmark.pedantic(ours, rounds=1)
    seconds = benchmark.stats.stats.total if not benchmark.disabled else float("nan")
    start = time.perf_counter()  # once more, every vector from the store
    again = ours()
    warm = time.perf_counter() - start

    plain_seconds, plain_scores, plain_sentences = 0.0, [], 0
    for spec, encoder in zip(specs, encoders, strict=True):
        plain = PlainEncoder(registry.build(spec, device="cpu"), encoder.mteb_model_meta)
        start = time.perf_counter()
        plain_scores.append(evaluate(plain, plain_task(columns), "accuracy"))
        plain_seconds += time.perf_counter() - start
        plain_sentences += plain.sentences

    sentences = sum(map(len, columns.values()))
    prompt = encoders[0].prompt_for(our_task(columns).metadata)
    distinct = len({(prompt, text) for texts in columns.values() for text in texts})
    encoded = sum(encoder.raw.counts.encoded for encoder in encoders)
    assert sum(encoder.raw.counts.requested for encoder in encoders) == 2 * 8 * sentences
    assert encoded == distinct == sum(one.vectors for one in store.stats())
    assert plain_sentences == 8 * sentences
    assert again == scores
    gaps = [abs(a[pair] - b[pair]) for a, b in zip(scores, plain_scores, strict=True) for pair in a.keys() | b.keys()]
    assert len(gaps) == 8 * len(columns) * (len(columns) - 1)
    note(
        models=[spec.name for spec in specs], languages=list(columns), rows=sentences // len(columns),
        distinct=distinct, encoded=encoded, encode_calls=sum(encoder.raw.counts.batches for encoder in encoders),
        plain_encoded=plain_sentences, plain_seconds=plain_seconds, ratio=plain_seconds / seconds, warm_seconds=warm,
        largest_score_gap=max(gaps), mean_precision_at_1=[float(np.mean(list(one.values()))) for one in scores],
    )  # fmt: skip
    say(
        f"eight models, {len(columns)} languages x {sentences // len(columns)} rows, {len(gaps) // 8} pairs: "
        f"{encoded} texts encoded ({distinct} distinct of {sentences}), plain mteb {plain_sentences}; "
        f"{seconds:.1f} s against {plain_seconds:.1f} s: {plain_seconds / seconds:.1f}x; "
        f"with a full store {warm:.2f} s; largest difference of a score {max(gaps):.1e}"
    )
    assert max(gaps) <= 1e-6
