"""RawEncoder: the vectors of sentence-transformers itself, each distinct text encoded once, whatever the batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from xalign_models.backbones import pipeline, raw
from xalign_models.backbones.inputs import with_side
from xalign_models.backbones.pipeline import Batch
from xalign_models.backbones.raw import Counts, RawEncoder
from xalign_models.errors import DataError, ModelError
from xalign_models.store import EmbeddingStore

from .conftest import LIMIT, WIDTH, WORDS

RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, size=size)) for size in RNG.integers(0, 40, 60)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddingStore]:
    with EmbeddingStore(tmp_path / "store", 1 << 24) as store:
        yield store


@pytest.mark.parametrize("prompt", ["", "query: "])
@pytest.mark.parametrize("budget", [1, 64, 2048])
def test_vectors_are_those_of_sentence_transformers_in_the_order_of_the_texts(
    modules: list[Any], prompt: str, budget: int
) -> None:
    model = SentenceTransformer(modules=modules, device="cpu")
    vectors = RawEncoder("n", lambda: modules, "cpu", token_budget=budget).encode(TEXTS, prompt)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, model.encode(TEXTS, prompt=prompt or None), rtol=1e-6, atol=1e-6)


def test_threads_share_modules(modules: list[Any]) -> None:
    encoders = [RawEncoder("n", lambda: modules, "cpu") for _ in range(2)]
    expected = encoders[0].encode(TEXTS)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda i: encoders[i % 2].encode(TEXTS), range(24)):
            np.testing.assert_array_equal(found, expected)


def test_a_server_in_a_thread_of_this_process_answers(modules: list[Any]) -> None:
    own = RawEncoder("n", lambda: modules, "cpu")

    class Client(torch.nn.Module):
        def stream(self, texts: list[str], prompt: str) -> Iterator[tuple[Batch, Any]]:
            vectors = ThreadPoolExecutor(1).submit(own.encode, texts, prompt).result(timeout=20)
            yield Batch(np.arange(len(texts)), {}, 1, 1), vectors

    found = RawEncoder("m", lambda: [Client()], "cpu").encode(TEXTS)
    np.testing.assert_array_equal(found, own.encode(TEXTS))


def test_each_distinct_prompted_text_is_encoded_once(modules: list[Any], store: EmbeddingStore) -> None:
    encoder = RawEncoder("n", lambda: modules, "cpu", store)
    texts = ["the cat", "a dog", "the cat", "a dog", "the cat"]
    vectors = encoder.encode(texts)
    assert (encoder.counts.requested, encoder.counts.encoded) == (5, 2)
    np.testing.assert_array_equal(vectors, vectors[[0, 1, 0, 1, 0]])
    encoder.encode(["a dog", "a dog sees"])
    assert (encoder.counts.requested, encoder.counts.encoded) == (7, 3)
    encoder.encode(["a dog"], prompt="query: ")  # another prompt, another vector
    assert encoder.counts.encoded == 4


@pytest.mark.parametrize(("packs", "computed"), [(True, 15), (False, 16)])
def test_counts_are_exact(modules: list[Any], packs: bool, computed: int) -> None:
    modules[0]._packs = packs
    encoder = RawEncoder("n", lambda: modules, "cpu", token_budget=10)
    encoder.encode(["the", "the cat", "the cat sees", "a"])  # 3, 4, 5, 3 tokens: batches 5+4, 3+3
    assert encoder.counts == Counts(requested=4, encoded=4, batches=2, real_tokens=15, computed_tokens=computed)


def test_speed_is_measured_of_enough_tokens_and_without_loading(modules: list[Any]) -> None:
    def load() -> list[Any]:
        time.sleep(0.5)
        return modules

    encoder = RawEncoder("n", load, "cpu")
    encoder.encode(["the"])
    assert encoder.counts.tokens_per_second is None
    assert 0 < encoder.counts.seconds < 0.5
    start = time.perf_counter()
    encoder.encode([f"the cat {number}" for number in range(2000)])
    took = time.perf_counter() - start
    assert encoder.counts.tokens_per_second is not None
    assert encoder.counts.real_tokens / encoder.counts.tokens_per_second <= took + 0.5


def test_a_second_encoder_on_the_same_store_encodes_and_loads_nothing(
    modules: list[Any], store: EmbeddingStore
) -> None:
    vectors = RawEncoder("n", lambda: modules, "cpu", store).encode(TEXTS)

    def load() -> list[Any]:
        raise AssertionError("the modules were loaded")

    second = RawEncoder("n", load, "cpu", store)
    np.testing.assert_array_equal(second.encode(TEXTS[::-1]), vectors[::-1])
    assert (second.counts.encoded, second.counts.batches) == (0, 0)
    with pytest.raises(AssertionError, match="were loaded"):
        RawEncoder("another backbone", load, "cpu", store).encode(TEXTS)


def test_chunks_and_flushes_change_nothing(
    modules: list[Any], store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = RawEncoder("n", lambda: modules, "cpu").encode(TEXTS)
    monkeypatch.setattr(pipeline, "FIRST_CHUNK", 3)
    monkeypatch.setattr(pipeline, "CHUNK", 7)
    monkeypatch.setattr(pipeline, "SLICE", 2)
    monkeypatch.setattr(raw, "FLUSH", 2)
    in_chunks = RawEncoder("n", lambda: modules, "cpu", store).encode(TEXTS)  # other batches: float32 rounds otherwise
    np.testing.assert_allclose(in_chunks, wanted, atol=1e-6, rtol=1e-5)
    assert store.stats()[0].vectors == len(set(TEXTS))


def test_a_run_that_ends_early_keeps_what_it_had_flushed(
    modules: list[Any], store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "FLUSH", 1)
    encoder = RawEncoder("n", lambda: modules, "cpu", store, token_budget=1)
    launch = encoder.launch
    calls = iter(range(4))  # vectors are fetched when the next batch is launched

    def interrupted(features: dict[str, Any]) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return launch(features)

    monkeypatch.setattr(encoder, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(TEXTS)
    second = RawEncoder("n", lambda: modules, "cpu", store)
    second.encode(TEXTS)
    assert second.counts.encoded == len(set(TEXTS)) - 3


def test_an_empty_text_and_a_very_long_one(modules: list[Any]) -> None:
    encoder = RawEncoder("n", lambda: modules, "cpu")
    long = "the cat " * 12_500
    vectors = encoder.encode(["", long, " ".join(["the cat"] * LIMIT)])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-6)  # both are cut at the limit
    assert encoder.counts.real_tokens == 2 + LIMIT + LIMIT
    with pytest.raises(ModelError, match="no texts"):
        encoder.encode([])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_names_its_text_and_is_not_stored(
    modules: list[Any], store: EmbeddingStore, value: float
) -> None:
    class Broken(torch.nn.Module):
        takes_packs = True

        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            ids, starts = features["input_ids"][0], features["cu_seq_lens_q"].tolist()
            for i, (start, end) in enumerate(pairwise(starts)):
                if 5 + WORDS.index("hund") in ids[start:end]:
                    features["sentence_embedding"][i] = value
            return features

    encoder = RawEncoder("n", lambda: [*modules, Broken()], "cpu", store)
    with pytest.raises(ModelError, match=r"'eine hund' is not finite\. Use --dtype float32; if you do, the weights"):
        encoder.encode(["the cat", "eine hund", "a"])
    assert store.get("n", [raw.key("", "eine hund")]) == [None]


@pytest.mark.parametrize("broken", ["no pooling", "no transformer", "other output", "no mode", "odd chunks"])
def test_modules_that_do_not_fit_together_are_one_line_that_names_the_model(modules: list[Any], broken: str) -> None:
    if broken == "other output":
        modules[0].module_output_name = "zzz"
    elif broken == "no mode":
        modules[1].pooling_mode = ()
    elif broken == "odd chunks":
        for layer in modules[0].model.encoder.layer:
            layer.chunk_size_feed_forward = 7
    chosen = {"no pooling": modules[:1], "no transformer": modules[1:]}.get(broken, modules)
    encoder = RawEncoder("n", lambda: chosen, "cpu", name="odd")
    with pytest.raises(
        ModelError, match=r"^odd cannot encode: [^\n]+\. Its files may be damaged [^\n]+: get them again"
    ):
        encoder.encode(["the cat", "a dog sees"])


@pytest.mark.parametrize("reason", ["CUDA error: out of resources", "DefaultCPUAllocator: can't allocate memory"])
def test_an_error_of_the_device_stays_what_it_is(modules: list[Any], reason: str) -> None:
    def failing(features: dict[str, Any]) -> Any:
        raise RuntimeError(reason)

    modules[1].forward = failing
    with pytest.raises(RuntimeError, match=reason):
        RawEncoder("n", lambda: modules, "cpu").encode(["the cat"])


def test_gradients_are_not_recorded_and_modes_not_changed(modules: list[Any]) -> None:
    RawEncoder("n", lambda: modules, "cpu").encode(["the cat"])
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in modules[0].parameters())


@pytest.mark.parametrize("count", [3, 40])
def test_half_of_a_surrogate_pair_is_named_among_any_number_of_texts(modules: list[Any], count: int) -> None:
    texts = [f"the cat {number}" for number in range(count)]
    with pytest.raises(DataError, match=r"'cut \\ud83d' contains half of a surrogate pair"):
        RawEncoder("n", lambda: modules, "cpu").encode([*texts, "cut \ud83d", "the cat " * 40])


@pytest.mark.parametrize("order", list(permutations(["one", "several"])))
def test_processes_that_tokenise_elsewhere_raise_no_alarm_about_the_tokenizer(
    modules: list[Any], store: EmbeddingStore, caplog: pytest.LogCaptureFixture, order: tuple[str, ...]
) -> None:
    for devices in order:
        _ = RawEncoder("n", lambda one=devices == "one": modules if one else modules[1:], "cpu", store).modules
    assert not caplog.records


def test_cut_texts_are_counted_and_said_once(modules: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    encoder = RawEncoder("n", lambda: modules, "cpu")
    longs = [" ".join(["cat"] * size) for size in (LIMIT - 3, LIMIT - 1, LIMIT, LIMIT + 5)]  # and two special tokens
    encoder.encode(["the", "a dog", *longs], progress="Task deu")
    assert encoder.counts.full == 3
    encoder.encode([f"dog {longs[2]}", f"sees {longs[2]}"])
    assert [record.getMessage() for record in caplog.records] == [
        f"Task deu: texts that reach the model's maximum number of tokens, {LIMIT}: 3 of 6; longer ones are truncated."
    ]


def test_cut_texts_are_said_beside_a_route_without_a_limit(
    modules: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "cat": 1}, unk_token="[UNK]"))
    router = Router.for_query_document([StaticEmbedding(tokenizer, embedding_dim=WIDTH)], modules)
    encoder = RawEncoder("n", lambda: [router], "cpu")
    for side in ("query", "document"):
        encoder.encode(["cat " * 2 * LIMIT, "cat"], with_side(side, ""), progress=side)
    assert [record.getMessage() for record in caplog.records] == [
        f"document: texts that reach the model's maximum number of tokens, {LIMIT}: 1 of 2; longer ones are truncated."
    ]


def test_cut_texts_are_said_if_other_processes_encode(caplog: pytest.LogCaptureFixture) -> None:
    class Elsewhere(torch.nn.Module):
        def stream(self, texts: list[str], prompt: str) -> Iterator[Any]:
            yield Batch(np.arange(len(texts)), {}, 9, 9, full=1), np.eye(len(texts), dtype=np.float32)

    RawEncoder("n", lambda: [Elsewhere()], "cpu").encode(["cat", "dog"], progress="deu")
    assert (
        "deu: texts that reach the model's maximum number of tokens: 1 of 2; longer ones are truncated." in caplog.text
    )


def test_texts_that_are_equal_once_cut_are_said(modules: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    prompt = " ".join(["cat"] * LIMIT)
    RawEncoder("n", lambda: modules, "cpu").encode(["the dog", "a cat", "the"], prompt)
    assert "all 3 texts have the same vector; they or their prompt are too long" in caplog.text


def test_another_version_of_the_tokenizer_is_noticed(
    modules: list[Any], store: EmbeddingStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RawEncoder("n", lambda: modules, "cpu", store)
    first.encode(["the cat"])
    RawEncoder("n", lambda: modules, "cpu", store).encode(["a dog"])
    assert not caplog.records
    monkeypatch.setattr(pipeline, "PROBE", "the")  # stands for a library that splits the text in another way
    second = RawEncoder("n", lambda: modules, "cpu", store)
    second.encode(["the cat"])  # known: nothing is encoded, and the tokenizer is not opened
    assert not caplog.records
    second.encode(["a cat"])
    assert "gives other tokens than the one whose vectors are stored for n" in caplog.text
    assert second.counts.tokens != first.counts.tokens
    store.clear("n")
    caplog.clear()
    RawEncoder("n", lambda: modules, "cpu", store).encode(["the cat"])
    assert not caplog.records
