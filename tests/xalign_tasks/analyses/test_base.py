"""A request names models and loads them on its device."""

from __future__ import annotations

import pytest

from xalign_models.analysis import Request
from xalign_models.errors import ModelError
from xalign_models.plugins import ANALYSES


def test_analyses_are_described_and_can_be_imported():
    assert all(ANALYSES.facts(name)["description"].endswith(".") and callable(ANALYSES[name]) for name in ANALYSES)


def test_models_are_named_or_asked_for():
    assert Request(("a", "b")).named() == ("a", "b")
    with pytest.raises(ModelError, match="--model: name at least one"):
        Request().named()


def test_a_model_is_loaded_with_the_store(workdir, tiny_model):
    encoder = Request(device="cpu").load(str(tiny_model))
    assert encoder.raw.store.path == workdir / "store"
    assert encoder.encode_texts(["w1 w2"], [None]).shape == (1, 16)
