"""Eight aligned models of one backbone: ours encodes every text once, plain mteb once per model."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from xalign_models.backbones.loading import Backbone
from xalign_models.models.building import build, load_encoder, raw_encoder
from xalign_models.models.recipe import Recipe

pytest.importorskip("mteb", reason="mteb is not installed")  # a GPU machine may have torch without it
import mteb

from benchmarks.board import Event, PlainEncoder, board, our_task, plain_task, without_ties
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
    alignments = (dataclasses.replace(catalogue.fits()[corpus][method], **changes) for method in METHODS)
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


def evaluate(model: Any, tasks: list[Any], metric: str) -> dict[str, float]:
    """The metric by language pair, of tasks that have no pair in common."""
    options = {"cache": None, "show_progress_bar": False, "co2_tracker": False}
    results = [result for task in tasks for result in mteb.evaluate(model, task, **options).task_results]
    return {entry["hf_subset"]: entry[metric] for one in results for entry in next(iter(one.scores.values()))}


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of a call, and its seconds."""
    start = time.perf_counter()
    return function(*arguments), time.perf_counter() - start


class Race:
    """The models of ``specs`` with one empty store, and the same fitted models in plain mteb."""

    def __init__(self, specs: list[ModelSpec], store: EmbeddingStore) -> None:
        self.specs = specs
        self.encoders = [load_encoder(spec, device="cpu", store=store) for spec in specs]
        modules = self.encoders[0].raw.modules  # loads the weights, which all models of both sides share
        with patch.object(Backbone, "modules", lambda backbone, device: modules):
            self.plains = [
                PlainEncoder(build(spec, device="cpu"), encoder.mteb_model_meta)
                for spec, encoder in zip(specs, self.encoders, strict=True)
            ]
        self.gaps: dict[str, float] = {}

    def ours(self, event: Event) -> list[dict[str, float]]:
        """Our scores on a task."""
        return [evaluate(encoder, [event.ours], event.metrics[0]) for encoder in self.encoders]

    def plain(self, event: Event, ours: list[dict[str, float]]) -> None:
        """Let plain mteb do the same task, and gather the differences from our scores."""
        for spec, encoder, x in zip(self.specs, self.plains, ours, strict=True):
            y = evaluate(encoder, event.plain, event.metrics[1])
            assert x.keys() == y.keys()
            self.gaps |= {f"{spec.name} {event.ours.metadata.name} {pair}": abs(x[pair] - y[pair]) for pair in x}

    def turns(self, event: Event) -> tuple[float, float]:
        """Seconds that we and plain mteb take for a task."""
        ours, mine = timed(self.ours, event)
        return mine, timed(self.plain, event, ours)[1]

    @property
    def encoded(self) -> int:
        """Number of texts that our models encoded."""
        return sum(encoder.raw.counts.encoded for encoder in self.encoders)

    @property
    def plain_encoded(self) -> int:
        """Number of texts that plain mteb's models encoded."""
        return sum(plain.sentences for plain in self.plains)


@pytest.mark.quick
@pytest.mark.filterwarnings(
    "ignore:To copy construct from a tensor", "ignore:.* pairs for an affine map", "ignore:.*fewer pairs"
)
def test_eight_models(columns, benchmark, note, tmp_path, monkeypatch, pytestconfig):
    specs = models("gettext", languages=tuple(columns), limit=64 if pytestconfig.getoption("--quick") else None)
    sentences = sum(map(len, columns.values()))
    with EmbeddingStore(tmp_path / "fit", 1 << 28) as fit, EmbeddingStore(tmp_path / "bench", 1 << 28) as store:
        # Both sides use the same fitted alignments; fitting and loading are not timed.
        monkeypatch.setattr("xalign_models.store.open_store", lambda: fit)
        for spec in specs:
            _ = Recipe(spec, raw_encoder(spec.backbone, "cpu", fit)).fitted
        race, event = Race(specs, store), Event(our_task(columns), [plain_task(columns)])
        scores = benchmark.pedantic(race.ours, (event,), rounds=1)
        seconds = benchmark.stats.stats.total if not benchmark.disabled else float("nan")
        again, warm = timed(race.ours, event)  # with every vector in the store
        assert again == scores
        _, plain_seconds = timed(race.plain, event, scores)
        prompt = race.encoders[0].prompt_for(event.ours.metadata)
        distinct = len({(prompt, text) for texts in columns.values() for text in texts})
        assert sum(encoder.raw.counts.requested for encoder in race.encoders) == 2 * 8 * sentences
        assert race.encoded == distinct == sum(entry.vectors for entry in store.stats())
    assert race.plain_encoded == 8 * sentences
    assert len(race.gaps) == 8 * len(columns) * (len(columns) - 1)
    note(
        models=[spec.name for spec in specs], languages=list(columns), rows=sentences // len(columns),
        distinct=distinct, encoded=race.encoded, plain_encoded=race.plain_encoded, seconds=seconds, warm_seconds=warm,
        encode_calls=sum(encoder.raw.counts.batches for encoder in race.encoders), plain_seconds=plain_seconds,
        ratio=plain_seconds / seconds, largest_score_gap=max(race.gaps.values()),
        mean_precision_at_1=[float(np.mean(list(by_pair.values()))) for by_pair in scores],
    )  # fmt: skip
    assert max(race.gaps.values()) <= 1e-6


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_whole_leaderboard(pytestconfig, benchmark, note, tmp_path):
    """Eight models on FLORES, NTREX, Tatoeba-36 and STS17, task by task in turns with plain mteb."""
    require(BACKBONE)
    languages = [canonical(code) for code in pytestconfig.getoption("--bench-board-languages").split()]
    pairs, rows = (pytestconfig.getoption(f"--bench-board-{option}") for option in ("pairs", "rows"))
    specs = models("")
    try:
        events = board(languages, pairs, rows)
        for spec in specs:
            load_encoder(spec, device="cpu", store=open_store())  # fits, which is not timed
    except DataError as error:
        pytest.skip(str(error))
    with EmbeddingStore(tmp_path / "board", 1 << 30) as store:
        race = Race(specs, store)
        seconds = np.array(benchmark.pedantic(lambda: [race.turns(event) for event in events], rounds=1))
        assert race.encoded == sum(entry.vectors for entry in store.stats())
    mine, theirs = seconds.sum(axis=0)
    different = {name: gap for name, gap in race.gaps.items() if gap > 1e-6}
    largest = max(race.gaps.values())
    note(
        models=[spec.name for spec in specs], languages=languages, rows=rows, scores=len(race.gaps),
        encoded=race.encoded, plain_encoded=race.plain_encoded, seconds=mine, plain_seconds=theirs,
        seconds_by_task=seconds.tolist(), ratio=theirs / mine, largest_gap=largest, different=different,
    )  # fmt: skip
    assert race.plain_encoded >= 8 * race.encoded
    # Vectors that agree to 1e-6 may order two equally near candidates differently, which changes one sentence.
    assert len(different) <= len(race.gaps) / 200 and largest <= 1.2 / rows
