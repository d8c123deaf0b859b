"""Maps by language are fitted when they are asked for: the same maps, and no text of other languages is encoded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xalign_models.errors import LanguageError
from xalign_models.models.building import build, load_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore

LANGUAGES = ("deu", "eng", "fra", "spa", "ita")
ROWS = 40


@pytest.fixture
def specs(workdir, tiny_model, write_text):
    text = write_text(workdir / "fit", ROWS, LANGUAGES)
    backbone = find_spec(str(tiny_model)).backbone

    def make(method):
        return ModelSpec(backbone, AlignmentSpec(method, method, corpora=(f"own:{text}",)), "fit")

    return make


@pytest.mark.slow
@pytest.mark.parametrize("method", ["centered", "lir", "procrustes", "affine", "shift", "lowrank", "residual"])
@pytest.mark.filterwarnings("ignore:40 pairs")
def test_maps_are_those_of_a_fit_of_all_languages(specs, method):
    spec, codes = specs(method), ["fra-Latn", "eng-Latn", "fra-Latn", "deu-Latn"]
    texts = [f"w{i} w{i + 1}" for i in range(len(codes))]
    lazy = load_encoder(spec, device="cpu").encode_texts(texts, codes)
    eager = build(spec, device="cpu").encode([{"text": t, "lang": c} for t, c in zip(texts, codes, strict=True)])
    np.testing.assert_allclose(lazy, eager, atol=1e-6)
    np.testing.assert_allclose(load_encoder(spec, device="cpu").encode_texts(texts, codes), eager, atol=1e-6)


def test_maps_that_are_trained_are_trained_while_the_encoder_encodes(specs):
    """The encoder computes without gradients, which a descent needs."""
    spec = specs("affine")
    trained = dataclasses.replace(spec, alignment=dataclasses.replace(spec.alignment, params=(("loss", "distance"),)))
    assert load_encoder(trained, device="cpu").encode_texts(["w1"], ["deu-Latn"]).shape == (1, 16)


@pytest.mark.parametrize(("method", "sides"), [("centered", 1), ("procrustes", 2), ("shift", 2)])
def test_only_languages_that_are_asked_for_are_encoded(specs, workdir, method, sides):
    with EmbeddingStore(workdir / "own-store", 1 << 26) as store:
        encoder = load_encoder(specs(method), device="cpu", store=store)
        assert encoder.languages == {"deu-Latn", "eng-Latn", "fra-Latn", "spa-Latn", "ita-Latn"}
        assert encoder.raw.counts.requested == 0
        encoder.encode_texts(["w1"], ["deu-Latn"])
        assert encoder.raw.counts.requested == sides * ROWS + 1
        encoder.encode_texts(["w2"], ["deu-Latn"])
        assert encoder.raw.counts.requested == sides * ROWS + 2
        encoder.encode_texts(["w3"], ["fra-Latn"])
        assert encoder.raw.counts.requested == 2 * sides * ROWS + 3


def test_the_pivot_alone_is_left_as_it_is(specs, tiny_model):
    found = load_encoder(specs("procrustes"), device="cpu").encode_texts(["w1 w2"], ["eng-Latn"])
    plain = load_encoder(str(tiny_model), device="cpu").encode_texts(["w1 w2"], [None])
    np.testing.assert_allclose(found, plain, atol=1e-6)


def test_a_language_without_text_is_named(specs):
    encoder = load_encoder(specs("centered"), device="cpu")
    with pytest.raises(LanguageError, match=r"not fitted for tha-Thai; fitted languages: deu-Latn"):
        encoder.encode_texts(["w1"], ["tha-Thai"])
    with pytest.raises(LanguageError, match="fitted languages"):
        encoder.encode_texts(["w1"], [None])


def test_an_earlier_fit_without_the_other_prompts_is_no_joint_fit(specs):
    """The cache has the map of a model with one prompt; a model with more of them shares a subspace between them."""
    alone = specs("lsar")
    build(alone, device="cpu")
    spec = dataclasses.replace(alone, backbone=dataclasses.replace(alone.backbone, prompts=(("query", "w9 "),)))
    found = load_encoder(spec, device="cpu").encode_texts(["w1 w2"], ["deu-Latn"])
    np.testing.assert_allclose(found, build(spec, device="cpu").encode(["w1 w2"]), atol=1e-6)
