"""A server that does one thing wrong is told from the model itself, and one that does nothing wrong is not."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from tests.xalign_models.parity.test_parity import faulty, real, real_texts, sample
from xalign_models.errors import ModelError
from xalign_models.parity.compare import compare
from xalign_models.parity.served import Served

__all__ = ["real", "real_texts"]
PROMPT = "w90 w91 "
FAULTS = ("", "prompt", "normalisation", "truncation", "pooling")


@pytest.fixture
def base(workdir, tiny_model):
    """A tiny model with a prompt, as a directory, and texts of which some are longer than sixteen tokens."""
    model = SentenceTransformer(str(tiny_model), device="cpu", prompts={"default": PROMPT})
    model.default_prompt_name = "default"
    model.save_pretrained("base", create_model_card=False)
    return workdir / "base", sample(lambda language: [f"w{number}" for number in range(80)])


def one_at_a_time(encode):
    """The server answers in threads."""
    lock = threading.Lock()

    def locked(texts):
        with lock:
            return encode(list(texts))

    return locked


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_live_server_is_named(serve, base, monkeypatch, fault):
    monkeypatch.setattr("xalign_models.parity.causes.LIMITS", (16,))
    monkeypatch.setenv("XALIGN_ENDPOINT_TIMEOUT", "20")
    directory, texts = base
    server = serve(one_at_a_time(faulty(directory, fault, PROMPT, (32, 16))))
    sides = [Served(str(directory), "cpu"), Served(server.openai, "cpu")]
    for found in (compare(*sides, texts), compare(*sides[::-1], texts)):
        assert [cause.kind for cause in found.causes] == ([fault] if fault else [])
        assert found.same == (not fault)


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"truncate_dim": 8}, {"vectors": "binary"}, {"truncate_dim": 8, "vectors": "binary"}])
def test_shorter_and_binary_vectors_are_compared_as_they_are_kept(serve, base, monkeypatch, way):
    """A server may cut or round by itself; what is left of both is compared."""
    monkeypatch.setenv("XALIGN_ENDPOINT_TIMEOUT", "20")
    directory, texts = base
    whole = one_at_a_time(faulty(directory, "", PROMPT, (32, 32)))

    def served(listed):
        vectors = whole(listed)[:, : way.get("truncate_dim")]
        return np.where(vectors > 0, 1, -1) if "vectors" in way else vectors

    reduced = Served(str(directory), "cpu", **way)
    equal = compare(reduced, Served(serve(served).tei, "cpu", **way), texts)
    assert {cause.kind for cause in equal.causes} <= {"normalisation"}
    assert equal.least > 1 - 1e-9
    other = serve(lambda listed: -served(listed))
    assert not compare(reduced, Served(other.tei, "cpu", **way), texts).same
    with pytest.raises(ModelError, match="its own ranges"):
        Served(str(directory), "cpu", vectors="int8")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "prompt", "normalisation", "truncation"])
def test_a_fault_of_a_real_model_behind_a_server_is_named(serve, real, real_texts, monkeypatch, fault):
    monkeypatch.setenv("XALIGN_ENDPOINT_TIMEOUT", "120")
    server = serve(one_at_a_time(faulty(real, fault, "query: ", (512, 64))))
    found = compare(Served(str(real), "cpu"), Served(server.openai, "cpu"), real_texts)
    assert [cause.kind for cause in found.causes] == ([fault] if fault else [])
