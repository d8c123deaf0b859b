"""The language of a text is one of the given ones, or said to be in doubt; it never raises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xalign_models
from xalign_models import identification
from xalign_models.alignments.module import Aligned
from xalign_models.backbones.inputs import prompt_of, split_inputs
from xalign_models.errors import LanguageError
from xalign_models.identification import LEAST_CONFIDENCE, UNDETERMINED, identify
from xalign_models.models.building import load_encoder

pytest.importorskip("py3langid", reason="needs xalign[langid]")
FITTED = ("deu-Latn", "eng-Latn", "fra-Latn", "spa-Latn")
SENTENCES = {
    "deu-Latn": "Das ist ein deutscher Satz, den niemand für einen englischen halten wird.",
    "eng-Latn": "This is an English sentence, and nobody will take it for a German one.",
    "fra-Latn": "Ceci est une phrase française que personne ne prendra pour une autre.",
}
DOUBTFUL = ["1,200", "", "3.14", "!!!", "OK", "42"]


def test_sentences_are_found_and_numbers_are_in_doubt():
    found = identify([*SENTENCES.values(), *DOUBTFUL], FITTED)
    assert [one.language for one in found] == [*SENTENCES, *[UNDETERMINED] * len(DOUBTFUL)]
    assert all(one.confidence >= LEAST_CONFIDENCE for one in found[: len(SENTENCES)])
    assert all(one.confidence < LEAST_CONFIDENCE for one in found[len(SENTENCES) :])


def test_only_given_languages_are_found():
    texts = [*SENTENCES.values(), "Dit is een Nederlandse zin.", "これは日本語です", "Hallo", "ok ok"]
    for among in (FITTED[:2], ("deu-Latn", "zho-Hans"), FITTED):
        assert {one.language for one in identify(texts, among)} <= {*among, UNDETERMINED}
    assert {one.language for one in identify(texts, ("xxx-Xxxx",))} == {UNDETERMINED}


def test_each_distinct_text_is_classified_once_among_the_given_languages_alone(monkeypatch):
    identifier, _ = identification._identifier(FITTED)
    assert len(identifier.labels) == len(FITTED)
    calls = []

    class Counting:
        def classify(self, text):
            calls.append(text)
            return identifier.classify(text)

    _, labels = identification._identifier(FITTED)
    monkeypatch.setattr(identification, "_identifier", lambda among: (Counting(), labels))
    identify(["a b", "c d", "a b"] * 10, FITTED)
    assert calls == ["a b", "c d"]


def test_another_restriction_leaves_the_first_one_alone():
    first = identify([SENTENCES["fra-Latn"]], FITTED)
    assert identify([SENTENCES["fra-Latn"]], FITTED[:2])[0].language != "fra-Latn"
    assert identify([SENTENCES["fra-Latn"]], FITTED) == first


def test_a_prompt_is_chosen_among_the_languages_that_have_one():
    prompts = {"deu-Latn": "D ", "eng-Latn": "E "}
    texts = [SENTENCES["deu-Latn"], "1234", SENTENCES["eng-Latn"]]
    _, codes = split_inputs(texts, "auto")
    assert [prompt_of(prompts, code) for code in codes] == ["D ", "E ", "E "]


@pytest.mark.parametrize("unknown", ["error", "mean", "related", "unaligned"])
def test_a_batch_of_short_texts_is_encoded_and_doubt_gets_the_mean_map(workdir, tiny_model, write_text, unknown):
    text = write_text(workdir / "fit", 40, ("deu", "eng", "fra", "spa"))
    fields = {"backbone": str(tiny_model), "corpus": f"own:{text}", "device": "cpu", "unknown": unknown}
    model = xalign_models.fit("affine", default_lang="auto", **fields)
    texts = [*SENTENCES.values(), *DOUBTFUL[2:]] * 5
    found = model.encode(texts, batch_size=7)
    module = next(module for module in model if isinstance(module, Aligned))
    expected = model.encode(texts[:3], lang=[*SENTENCES])
    np.testing.assert_allclose(found[:3], expected, atol=1e-6)
    raw = torch.from_numpy(load_encoder(str(tiny_model), device="cpu").raw.encode(texts[3:7], ""))
    mean = raw if unknown == "unaligned" else module.mapped(raw, module._maps)
    mean = mean.numpy() / np.linalg.norm(mean.numpy(), axis=1, keepdims=True)
    np.testing.assert_allclose(found[3:7], mean, atol=1e-5)
    xalign_models.save(model, "saved")
    np.testing.assert_allclose(xalign_models.load("saved", device="cpu").encode(texts), found, atol=1e-6)
    if unknown == "error":
        with pytest.raises(LanguageError, match="jpn-Jpan"):
            model.encode(["12", "これは"], lang=["auto", "ja"])
