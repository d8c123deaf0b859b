"""Eight aligned models of one backbone: ours encodes every text once, plain mteb once per model."""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from xalign_models.models.building import build, load_encoder, raw_encoder
from xalign_models.models.recipe import Recipe

pytest.importorskip("mteb", reason="mteb is not installed")  # a GPU machine may have torch without it
import mteb

from benchmarks.board import PlainEncoder, board, our_task, plain_task, without_ties
from benchmarks.corpus import require
from xalign_models import corpora
from xalign_models.errors import DataError
from xalign_models.languages import canonical
from xalign_models.models import catalogue
from xalign_models.specs import ModelSpec
from xalign_models.store import EmbeddingStore, open_store

BACKBONE = "multilingual-e5-small-q4"
METHODS = ("centered", "lir-1", "lir-15", "lsar", "procrustes", "procrustes-shrunk", "affine")


def models(corpus: str, **changes: Any) -> list[ModelSpec]:
    """The unaligned backbone and seven registered alignments with this fit text, some of their fields changed."""
    backbone = catalogue.BACKBONES[BACKBONE]
    alignments = (dataclasses.replace(catalogue.ALIGNMENTS[corpus][method], **changes) for method in METHODS)
    specs = [ModelSpec(backbone), *(ModelSpec(backbone, alignment, corpus) for alignment in alignments)]
    assert len(specs) == len({spec.name for spec in specs}) == 8
    return specs


@pytest.fixture(scope="module")
def columns(pytestconfig) -> dict[str, list[str]]:
    """Translations in a few languages, row by row."""
    require(BACKBONE, "gettext")
    chosen = sorted(canonical(code) for code in pytestconfig.getoption("--bench-languages").split())
    try:
        found = corpora.load(pytestconfig.getoption("--bench-corpus"), local=True).parallel(chosen)
    except DataError as error:
        pytest.skip(str(error))
    return without_ties({code: texts[: pytestconfig.getoption("--bench-rows")] for code, texts in found.items()})


def evaluate(model: Any, task: Any, metric: str) -> dict[str, float]:
    """The metric by language pair."""
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False).task_results[0]
    return {entry["hf_subset"]: entry[metric] for entry in result.scores[next(iter(result.scores))]}


@pytest.fixture
def stores(tmp_path) -> Iterator[tuple[EmbeddingStore, EmbeddingStore]]:
    """A store for fitting, and an empty one for the timed run."""
    with EmbeddingStore(tmp_path / "fit", 1 << 28) as fit, EmbeddingStore(tmp_path / "bench", 1 << 28) as fresh:
        yield fit, fresh


@pytest.mark.quick
@pytest.mark.filterwarnings(
    "ignore:To copy construct from a tensor", "ignore:.* pairs for an affine map", "ignore:.*fewer pairs than"
)
def test_eight_models(columns, benchmark, note, say, stores, monkeypatch):
    specs = models("gettext", languages=tuple(columns))
    fit_store, store = stores
    # Both sides use the same fitted alignments; fitting and loading are not timed.
    monkeypatch.setattr("xalign_models.store.open_store", lambda: fit_store)
    for spec in specs:
        _ = Recipe(spec, raw_encoder(spec.backbone, "cpu", fit_store)).fitted
    encoders = [load_encoder(spec, device="cpu", store=store) for spec in specs]
    _ = encoders[0].raw.modules  # loads the weights, which all eight share

    def ours() -> list[dict[str, float]]:
        return [evaluate(encoder, our_task(columns), "precision_at_1") for encoder in encoders]

    scores = benchmark.pedantic(ours, rounds=1)
    seconds = benchmark.stats.stats.total if not benchmark.disabled else float("nan")
    start = time.perf_counter()  # again, with every vector in the store
    again = ours()
    warm = time.perf_counter() - start

    plain_seconds, plain_scores, plain_sentences = 0.0, [], 0
    for spec, encoder in zip(specs, encoders, strict=True):
        plain = PlainEncoder(build(spec, device="cpu"), encoder.mteb_model_meta)
        start = time.perf_counter()
        plain_scores.append(evaluate(plain, plain_task(columns), "accuracy"))
        plain_seconds += time.perf_counter() - start
        plain_sentences += plain.sentences

    sentences = sum(map(len, columns.values()))
    prompt = encoders[0].prompt_for(our_task(columns).metadata)
    distinct = len({(prompt, text) for texts in columns.values() for text in texts})
    encoded = sum(encoder.raw.counts.encoded for encoder in encoders)
    assert sum(encoder.raw.counts.requested for encoder in encoders) == 2 * 8 * sentences
    assert encoded == distinct == sum(entry.vectors for entry in store.stats())
    assert plain_sentences == 8 * sentences
    assert again == scores
    gaps = [abs(a[pair] - b[pair]) for a, b in zip(scores, plain_scores, strict=True) for pair in a.keys() | b.keys()]
    assert len(gaps) == 8 * len(columns) * (len(columns) - 1)
    note(
        models=[spec.name for spec in specs], languages=list(columns), rows=sentences // len(columns),
        distinct=distinct, encoded=encoded, encode_calls=sum(encoder.raw.counts.batches for encoder in encoders),
        plain_encoded=plain_sentences, plain_seconds=plain_seconds, ratio=plain_seconds / seconds, warm_seconds=warm,
        largest_score_gap=max(gaps), mean_precision_at_1=[float(np.mean(list(by_pair.values()))) for by_pair in scores],
    )  # fmt: skip
    say(
        f"eight models, {len(columns)} languages x {sentences // len(columns)} rows, {len(gaps) // 8} pairs: "
        f"{encoded} texts encoded ({distinct} distinct of {sentences}), plain mteb {plain_sentences}; "
        f"{seconds:.1f} s against {plain_seconds:.1f} s: {plain_seconds / seconds:.1f}x; "
        f"with a full store {warm:.2f} s; largest difference between scores {max(gaps):.1e}"
    )
    assert max(gaps) <= 1e-6


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_whole_leaderboard(pytestconfig, benchmark, note, say, threads, tmp_path):
    """Eight models on FLORES, NTREX, Tatoeba-36 and STS17, task by task in turns with plain mteb."""
    require(BACKBONE)
    languages = [canonical(code) for code in pytestconfig.getoption("--bench-board-languages").split()]
    pairs, rows = (pytestconfig.getoption(f"--bench-board-{option}") for option in ("pairs", "rows"))
    specs = models("")
    try:
        events = board(languages, pairs, rows)
        ready = [load_encoder(spec, device="cpu", store=open_store()) for spec in specs]  # fits, which is not timed
    except DataError as error:
        pytest.skip(str(error))
    with EmbeddingStore(tmp_path / "board", 1 << 30) as store:
        encoders = [load_encoder(spec, device="cpu", store=store) for spec in specs]
        plains = [
            PlainEncoder(build(spec, device="cpu"), encoder.mteb_model_meta)
            for spec, encoder in zip(specs, ready, strict=True)
        ]
        _ = encoders[0].raw.modules
        seconds = np.zeros((len(events), 2))
        gaps: dict[str, float] = {}

        def run() -> None:
            for at, event in enumerate(events):
                start = time.perf_counter()
                ours = [evaluate(encoder, event.ours, event.metrics[0]) for encoder in encoders]
                middle = time.perf_counter()
                plain = [
                    {pair: score for task in event.plain for pair, score in evaluate(p, task, event.metrics[1]).items()}
                    for p in plains
                ]
                seconds[at] = middle - start, time.perf_counter() - middle
                for spec, x, y in zip(specs, ours, plain, strict=True):
                    assert x.keys() == y.keys()
                    gaps.update(
                        {f"{spec.name} {type(event.ours).__name__} {at} {key}": abs(x[key] - y[key]) for key in x}
                    )

        benchmark.pedantic(run, rounds=1)
        encoded = sum(encoder.raw.counts.encoded for encoder in encoders)
        assert encoded == sum(entry.vectors for entry in store.stats())
    plain_encoded = sum(plain.sentences for plain in plains)
    mine, theirs = seconds.sum(axis=0)
    different = {name: gap for name, gap in gaps.items() if gap > 1e-6}
    largest = max(gaps.values())
    note(
        models=[spec.name for spec in specs], languages=languages, rows=rows, scores=len(gaps), encoded=encoded,
        plain_encoded=plain_encoded, seconds_by_task=seconds.tolist(), ratio=theirs / mine, largest_gap=largest,
        different=different,
    )  # fmt: skip
    by_task = ", ".join(
        f"{type(event.ours).__name__} {b / a:.1f}x" for event, (a, b) in zip(events, seconds, strict=True)
    )
    say(
        f"leaderboard, 8 models, {len(languages)} languages x {rows} rows, {pairs} of Tatoeba, {threads} thread(s): "
        f"{encoded} texts encoded, plain mteb {plain_encoded} ({plain_encoded / encoded:.2f}x); {mine:.1f} s against "
        f"{theirs:.1f} s: {theirs / mine:.1f}x ({by_task}); {len(gaps)} scores, {len(different)} "
        f"different, by at most {largest:.1e}"
    )
    assert plain_encoded >= 8 * encoded
    # Vectors that agree to 1e-6 may order two equally near candidates differently, which changes one sentence.
    assert len(different) <= len(gaps) / 200 and largest <= 1.2 / rows
