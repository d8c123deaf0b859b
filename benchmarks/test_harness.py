"""Eight aligned models of one backbone on one real corpus: ours encodes every text once, plain mteb once per model."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from xalign_models.models.building import build, fitted, load_encoder, raw_encoder

pytest.importorskip("mteb", reason="mteb is not installed")  # GPU machines have torch and its like alone
import mteb

from benchmarks.board import PlainEncoder, board, our_task, plain_task, without_ties
from xalign_models import assets, corpora
from xalign_models.errors import DataError
from xalign_models.languages import canonical
from xalign_models.models import catalogue
from xalign_models.specs import ModelSpec
from xalign_models.store import EmbeddingStore, open_store

BACKBONE = "multilingual-e5-small-q4"


def models(languages: Sequence[str]) -> list[ModelSpec]:
    """The unaligned backbone and the seven registered alignments, fitted on the fit half of the embedded corpus."""
    backbone = catalogue.BACKBONES[BACKBONE]
    return [
        ModelSpec(backbone),
        *(
            ModelSpec(backbone, dataclasses.replace(alignment, languages=tuple(languages)), "gettext")
            for alignment in catalogue.ALIGNMENTS["gettext"].values()
        ),
    ]


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


def evaluate(model: Any, task: Any, metric: str) -> dict[str, float]:
    """The metric by language pair."""
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False).task_results[0]
    return {one["hf_subset"]: one[metric] for one in result.scores[next(iter(result.scores))]}


@pytest.fixture
def stores(tmp_path) -> Iterator[tuple[EmbeddingStore, EmbeddingStore]]:
    """One for fitting, and an empty one for what is timed."""
    with EmbeddingStore(tmp_path / "fit", 1 << 28) as fit, EmbeddingStore(tmp_path / "bench", 1 << 28) as fresh:
        yield fit, fresh


@pytest.mark.quick
@pytest.mark.filterwarnings(
    "ignore:To copy construct from a tensor", "ignore:.* pairs for an affine map", "ignore:.*fewer pairs than"
)
def test_eight_models(columns, benchmark, note, say, stores, monkeypatch):
    specs = models([*columns])
    assert len(specs) == len({spec.name for spec in specs}) == 8
    fit_store, store = stores
    # Both sides get the same fitted alignments, and neither is timed while it fits or loads weights.
    monkeypatch.setattr("xalign_models.store.open_store", lambda: fit_store)
    for spec in specs:
        fitted(spec, raw_encoder(spec.backbone, "cpu", fit_store))
    encoders = [load_encoder(spec, device="cpu", store=store) for spec in specs]
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


def board_models() -> list[ModelSpec]:
    """The unaligned backbone and the seven registered alignments, fitted on the corpora of the default runs."""
    backbone = catalogue.BACKBONES[BACKBONE]
    return [ModelSpec(backbone), *(ModelSpec(backbone, alignment) for alignment in catalogue.ALIGNMENTS[""].values())]


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_whole_leaderboard(pytestconfig, benchmark, note, say, threads, tmp_path):
    """Eight models on Flores, NTREX, Tatoeba-36 and STS17, task by task in turns with plain mteb."""
    if assets.where(BACKBONE) is None:
        pytest.skip(f"the asset is not installed; run: xalign assets install {BACKBONE}")
    languages = [canonical(one) for one in pytestconfig.getoption("--bench-board-languages").split()]
    pairs, rows = (pytestconfig.getoption(f"--bench-board-{what}") for what in ("pairs", "rows"))
    specs = board_models()
    assert len(specs) == len({spec.name for spec in specs}) == 8
    try:
        events = board(languages, pairs, rows)
        ready = [load_encoder(spec, device="cpu", store=open_store()) for spec in specs]  # fits, not timed
    except DataError as error:
        pytest.skip(str(error))
    with EmbeddingStore(tmp_path / "board", 1 << 30) as store:
        encoders = [load_encoder(spec, device="cpu", store=store) for spec in specs]
        plains = [
            PlainEncoder(build(spec, device="cpu"), one.mteb_model_meta) for spec, one in zip(specs, ready, strict=True)
        ]
        _ = encoders[0].raw.modules
        seconds = np.zeros((len(events), 2))
        gaps: dict[str, float] = {}

        def run() -> None:
            for at, event in enumerate(events):
                start = time.perf_counter()
                ours = [evaluate(one, event.ours, event.metrics[0]) for one in encoders]
                middle = time.perf_counter()
                plain = [
                    {key: value for task in event.plain for key, value in evaluate(one, task, event.metrics[1]).items()}
                    for one in plains
                ]
                seconds[at] = middle - start, time.perf_counter() - middle
                for spec, x, y in zip(specs, ours, plain, strict=True):
                    assert x.keys() == y.keys()
                    gaps.update(
                        {f"{spec.name} {type(event.ours).__name__} {at} {key}": abs(x[key] - y[key]) for key in x}
                    )

        benchmark.pedantic(run, rounds=1)
        encoded = sum(one.raw.counts.encoded for one in encoders)
        assert encoded == sum(one.vectors for one in store.stats())
    plain_encoded = sum(one.sentences for one in plains)
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
    # Vectors that agree to 1e-6 may order two candidates, as near to a query as each other, differently: one sentence.
    assert len(different) <= len(gaps) / 200 and largest <= 1.2 / rows
