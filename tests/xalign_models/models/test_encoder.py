"""Each text meets its own language, its own prompt, and mteb's mock tasks."""

from __future__ import annotations

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.types import PromptType
from torch.utils.data import DataLoader

from tests.xalign_models.conftest import QUICK
from xalign_models.alignments import METHODS
from xalign_models.backbones.packing import packed_attention
from xalign_models.errors import LanguageError, ModelError
from xalign_models.models import fitting
from xalign_models.models.api import as_mteb
from xalign_models.models.building import build, load, load_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec

ROTATED = {"deu": np.linalg.qr(np.random.default_rng(9).standard_normal((16, 16))).Q}
FLORES, STS17, TATOEBA = (mteb.get_task(name).metadata for name in ("FloresBitextMining", "STS17", "Tatoeba"))


@pytest.fixture
def raw(planted):
    return planted(turn=ROTATED)


@pytest.fixture
def encoder(workdir, planted, raw, make_encoder):
    text = planted.write(workdir / "fit", range(40))
    alignment = fitting.fit(AlignmentSpec("procrustes", "procrustes", corpora=(f"own:{text}",)), raw.encode)
    raw.encoded.clear()
    return make_encoder(raw, alignment, {"default": "d", "document": "p", "STS": "s", "Tatoeba": "t"})


def encode(encoder, columns, task, subset, **kwargs):
    loader = DataLoader(Dataset.from_dict(columns), batch_size=2)
    return encoder.encode(loader, task_metadata=task, hf_split="test", hf_subset=subset, **kwargs)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_lang_column_gives_each_text_its_own_map(encoder, raw):
    texts, lang = ["deu 50", "eng 51", "deu 52", "fra 53", "deu 54"], ["de", "en", "deu_Latn", "fra-Latn", "deu-Latn"]
    expected = unit(raw.encode([f"eng {i}" for i in range(50, 55)]))  # all rotated back into English
    found = encode(encoder, {"text": texts, "lang": lang}, STS17, "whatever")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32
    order = [3, 0, 4, 2, 1]
    mixed = encode(encoder, {"text": [texts[i] for i in order], "lang": [lang[i] for i in order]}, STS17, "x")
    np.testing.assert_array_equal(mixed, found[order])


@pytest.mark.parametrize(("task", "subset"), [(FLORES, "deu_Latn"), (mteb.get_task("STS22.v2").metadata, "de")])
def test_the_language_of_a_column_or_subset(encoder, raw, task, subset):
    found = encode(encoder, {"text": ["deu 50"]}, task, subset)
    np.testing.assert_allclose(found, unit(raw.encode(["eng 50"])), atol=1e-5)


@pytest.mark.parametrize("option", [{"precision": "int8"}, {"truncate_dim": 4}])
def test_options_that_would_change_vectors_are_refused(encoder, option):
    with pytest.raises(ModelError, match=f"takes no {next(iter(option))} in encode_kwargs"):
        encode(encoder, {"text": ["deu 50"]}, FLORES, "deu_Latn", batch_size=2, show_progress_bar=True, **option)


@pytest.mark.parametrize(("task", "subset"), [(TATOEBA, "deu-eng"), (STS17, "en-de")])
def test_a_task_that_hides_the_language_is_refused(encoder, task, subset):
    with pytest.raises(LanguageError, match=rf"{task.name} does not say .*{subset}.*'lang' column"):
        encode(encoder, {"text": ["deu 50"]}, task, subset)


def test_an_unfitted_language_is_refused_with_the_fitted_ones(encoder):
    with pytest.raises(LanguageError, match="not fitted for tur-Latn; fitted languages: eng-Latn, deu-Latn, fra-Latn"):
        encode(encoder, {"text": ["deu 50"], "lang": ["tur-Latn"]}, STS17, "x")
    with pytest.raises(LanguageError, match="Unknown"):
        encode(encoder, {"text": ["deu 50"], "lang": ["nonsense"]}, STS17, "x")
    assert encoder.unfitted(["tur", "de", "zh"]) == ["tur-Latn", "zho-Hans"]


def test_without_an_alignment_no_language_is_asked_for(make_encoder, raw):
    plain = make_encoder(raw)
    np.testing.assert_allclose(
        encode(plain, {"text": ["deu 1"]}, TATOEBA, "deu-eng"), unit(raw.encode(["deu 1"])), atol=1e-6
    )
    assert plain.unfitted(["tur"]) == []


def test_prompts_by_task_then_type_then_role_then_default(encoder, raw):
    cases = [
        (FLORES, None, "d"),
        (FLORES, PromptType.document, "p"),
        (FLORES, PromptType.query, "d"),
        (STS17, None, "s"),
        (STS17, PromptType.document, "s"),
        (TATOEBA, PromptType.document, "t"),
    ]
    for task, kind, expected in cases:
        assert encoder.prompt_for(task, kind) == expected
        encode(encoder, {"text": ["eng 1"], "lang": ["en"]}, task, "x", prompt_type=kind)
        assert raw.prompts[-1] == expected
    encoder.prompts = {"query": "q", "passage": "passage"}  # e5's own
    assert encoder.prompt_for(FLORES, PromptType.document) == "passage"
    assert encoder.prompt_for(FLORES, PromptType.query) == "q"
    encoder.prompts = {}
    assert encoder.prompt_for(FLORES) == ""


@pytest.fixture
def aligned(workdir, tiny_model, write_text):
    """The spec of a tiny model with a prompt, aligned by a method."""
    text = write_text(workdir / "fit", 40)
    backbone = find_spec(str(tiny_model), prompts=(("default", "w1 "),)).backbone

    def spec(method):
        params = tuple(QUICK.get(method, {}).items())
        return ModelSpec(backbone, method and AlignmentSpec(method, method, params, corpora=(f"own:{text}",)))

    return spec


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # mteb's mock tasks are too small for scikit-learn's taste
@pytest.mark.parametrize("method", [None, "procrustes", "lsar", "residual"])
def test_every_kind_of_model_passes_mtebs_mock_tasks(aligned, monkeypatch, method):
    """Without maps, with one for each language, with one for all, and with one that is not affine."""
    if method:  # mteb's curves of abstention take a third of the time, and the first model has had them
        monkeypatch.setattr("mteb._evaluators.retrieval_metrics.evaluate_abstention", lambda *_: {}, raising=False)
    result = mteb.mock_run(load_encoder(aligned(method), device="cpu"))
    assert result.all_passed, [one.exception for one in result.task_results.values() if hasattr(one, "exception")]
    assert sum(one is not None for one in result.task_results.values()) >= 20


@pytest.mark.filterwarnings("ignore:langsae")  # random words have no unit of a language
@pytest.mark.parametrize("method", [None, *METHODS])
def test_the_encoder_and_its_saved_sentence_transformer_agree(aligned, workdir, method):
    spec = aligned(method)
    encoder, model = load_encoder(spec, device="cpu"), build(spec, device="cpu")
    save(model, workdir / "saved")
    texts = ["w3 w4", "w5", "", "w6 w7 w8 w9 w10 w11", "w3"]
    languages = ["deu-Latn", "eng-Latn", "fra-Latn", "eng-Latn", "fra-Latn"]
    inputs = [{"text": text, "lang": lang} for text, lang in zip(texts, languages, strict=True)]
    expected = encoder.encode_texts(texts, languages)
    np.testing.assert_array_equal(encoder.encode_texts(texts, languages, prompt="w1 "), expected)
    assert np.abs(encoder.encode_texts(texts, languages, prompt="") - expected).max() > 1e-3
    rounding = 1e-5 if method == "whitened" else 1e-6  # whitening stretches the directions of little variance
    for one in (model, load(str(workdir / "saved"), device="cpu")):
        np.testing.assert_allclose(one.encode(inputs, batch_size=2), expected, atol=rounding)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6)


def test_a_model_in_memory_can_encode_while_its_encoder_packs(tiny_model):
    """Packing changes the attention of the encoder's own transformer, which has the same weights."""
    model = load(str(tiny_model), device="cpu")
    texts = ["w1", "w2 w3 w4 w5 w6 w7"]
    before = model.encode(texts)
    first = as_mteb(model).raw.modules[0]
    with packed_attention(first.model):
        np.testing.assert_array_equal(model.encode(texts), before)
    assert first.tokenizer is not model[0].tokenizer
    assert all(one is other for one, other in zip(first.parameters(), model[0].parameters(), strict=True))
