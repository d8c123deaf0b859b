"""Several devices, a process for each: two processes on the CPU stand for two GPUs."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from xalign_models.backbones import processes
from xalign_models.errors import ModelError
from xalign_models.models.building import build, load_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore

TEXTS = [f"house {number} green {'river ' * (number % 7)}" for number in range(300)]


def encode(encoder, texts):
    return encoder.encode_texts(texts, ["eng-Latn"] * len(texts))


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(processes, "FLUSH", 16)


@pytest.mark.slow
def test_vectors_of_two_processes_are_those_of_one_and_are_stored_here(workdir, tiny_model, small_pieces):
    alone = load_encoder(str(tiny_model), device="cpu")
    with EmbeddingStore(workdir / "vectors", 1 << 26) as store:
        both = load_encoder(str(tiny_model), device="cpu,cpu", store=store)
        np.testing.assert_allclose(encode(both, TEXTS), encode(alone, TEXTS), atol=1e-6)
        assert both.raw.counts.encoded == len(TEXTS) == sum(space.vectors for space in store.stats())
        assert both.raw.counts.real_tokens == alone.raw.counts.real_tokens
        encode(both, TEXTS)
        assert both.raw.counts.encoded == len(TEXTS)
    (module,) = both.raw.modules
    workers = dict(module._pool._processes)
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    with pytest.raises(ModelError, match="died"):
        both.raw.encode(["a text that is new"])


@pytest.mark.slow
def test_a_saved_model_runs_in_two_processes(workdir, tiny_model, write_text, small_pieces):
    corpora = (f"own:{write_text(workdir / 'fit', 40)}",)
    save(
        build(
            ModelSpec(find_spec(str(tiny_model)).backbone, AlignmentSpec("lir-1", "lir", (("k", 1),), corpora)),
            device="cpu",
        ),
        workdir / "saved",
    )
    one, two = (load_encoder(str(workdir / "saved"), device=device) for device in ("cpu", "cpu,cpu"))
    np.testing.assert_allclose(encode(two, TEXTS[:40]), encode(one, TEXTS[:40]), atol=1e-6)
