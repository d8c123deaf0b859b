"""The torch module equals the estimator in every row and dtype, and survives save and load."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

from tests.xalign_models.conftest import QUICK
from xalign_models.alignments import LSAR, METHODS, AffineMap, Centered, Procrustes, make
from xalign_models.alignments.module import Aligned
from xalign_models.errors import AlignmentError, LanguageError

LANGUAGES = ["tur-Latn", "eng-Latn", "deu-Latn", "deu-Latn", "eng-Latn", "tur-Latn"]
TEXTS = ["the cat sees a dog", "die katze", "eine katze sieht die hund die hund", "dog", "a cat", "hund"]


@pytest.fixture(params=METHODS)
def alignment(request, parallel):
    return make(request.param, **QUICK.get(request.param, {})).fit(parallel)


def module_of(alignment):
    return alignment.module() or Aligned.of(alignment)


def run(module, x, languages, **kwargs):
    return module({"sentence_embedding": x, "lang": languages}, **kwargs)["sentence_embedding"]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-6), ("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 1e-2)]
)
def test_module_equals_estimator(alignment, dtype, tolerance):
    x = torch.nn.functional.normalize(torch.from_numpy(np.random.default_rng(1).standard_normal((6, 16))))
    x = x.to(getattr(torch, dtype))
    before, module = x.clone(), module_of(alignment)
    for languages in (LANGUAGES, ["deu-Latn"] * 6):
        out = run(module, x, languages)
        expected = alignment.transform(x.double().numpy(), languages)
        assert out.dtype == x.dtype
        assert torch.equal(x, before)
        np.testing.assert_allclose(out.double().numpy(), expected, rtol=tolerance, atol=tolerance)
    scalar = module({"sentence_embedding": x}, lang="deu-Latn")["sentence_embedding"]
    assert torch.equal(scalar, out)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(run(module, x, languages), out)


def test_casting_the_model_does_not_round_the_maps(alignment):
    module, x = module_of(alignment), torch.ones(6, 16) / 4
    expected = run(module, x, LANGUAGES)
    for cast in (module.half(), module.to(torch.bfloat16), module.float()):
        assert torch.equal(run(cast, x, LANGUAGES), expected)
    assert all(buffer.dtype == torch.float32 for buffer in module.buffers())


def test_gradients_flow_to_the_backbone(alignment):
    x = torch.ones(6, 16, requires_grad=True)
    run(module_of(alignment), x, LANGUAGES).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_save_pretrained_round_trip(alignment, tiny_backbone, tmp_path):
    model = SentenceTransformer(modules=[*tiny_backbone, module_of(alignment)], device="cpu")
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    back = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert isinstance(back[2], Aligned)
    assert back[2].get_config_dict() == model[2].get_config_dict()
    assert back[2].fingerprint == alignment.fingerprint()
    assert (tmp_path / "model" / f"2_{type(model[2]).__name__}" / "model.safetensors").exists()
    assert back.get_embedding_dimension() == 16
    raw = SentenceTransformer(modules=tiny_backbone, device="cpu").encode(TEXTS)
    for language in ("deu-Latn", "eng-Latn"):
        ours = back.encode(TEXTS, lang=language, batch_size=2)
        np.testing.assert_array_equal(ours, model.encode(TEXTS, lang=language, batch_size=2))
        np.testing.assert_allclose(ours, alignment.transform(raw, language), atol=2e-6)


def test_a_language_per_text_survives_the_length_sort(parallel, tiny_backbone):
    """Encode sorts by length; the language travels inside the input, popped by the first module."""
    transformer, pooling = tiny_backbone
    preprocess = transformer.preprocess

    def with_language(inputs, prompt=None, **kwargs):
        features = preprocess([one["text"] for one in inputs], prompt=prompt, **kwargs)
        return features | {"lang": [one["lang"] for one in inputs]}

    raw = SentenceTransformer(modules=[transformer, pooling], device="cpu").encode(TEXTS)
    transformer.preprocess = with_language
    alignment = Centered().fit(parallel)
    model = SentenceTransformer(modules=[transformer, pooling, Aligned.of(alignment)], device="cpu")
    inputs = [{"text": text, "lang": lang} for text, lang in zip(TEXTS, LANGUAGES, strict=True)]
    np.testing.assert_allclose(model.encode(inputs, batch_size=4), alignment.transform(raw, LANGUAGES), atol=2e-6)


def test_maps_that_are_not_finite_are_no_model(parallel):
    fitted = Centered().fit(parallel)
    fitted.means_[0, 0] = np.nan
    with pytest.raises(AlignmentError, match="the maps of centered are not finite"):
        Aligned.of(fitted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": ()}, "arrays must be a tuple"), ({"arrays": "means_"}, "arrays must be a tuple"),
        ({"arrays": ("means_", "wieght_")}, "fit must set wieght_"), ({"means_": [[0.0]]}, "fit must set means_"),
        ({"factors": lambda self: {}}, r"its factors\(\) must return them"),
        ({"factors": lambda self: {"weights": np.eye(16)[None]}}, "returns weights, not weight, basis, shift"),
    ],
)  # fmt: skip
def test_a_method_that_breaks_the_protocol_is_told_how(parallel, changes, message):
    """Without maps it would be the identity, which looks like a method that changes nothing."""
    fitted = Centered().fit(parallel)
    fitted.__class__ = type("Own", (Centered,), {"arrays": Centered.arrays} | changes)
    for name in ("means_",) if "means_" in changes else ():
        setattr(fitted, name, changes[name])
    with pytest.raises(AlignmentError, match=message):
        Aligned.of(fitted)


@pytest.mark.parametrize("length", ["4.8", -1, 0, float("nan"), True, [4.8]])
def test_a_length_that_is_none_is_refused(parallel, length):
    """It comes out of a file."""
    config = Aligned.of(Centered().fit(parallel)).get_config_dict()
    with pytest.raises(AlignmentError, match="is not a valid vector length"):
        Aligned(**config | {"length": length})


def test_missing_and_unknown_languages(parallel):
    module, x = Aligned.of(Procrustes().fit(parallel)), torch.ones(2, 16)
    with pytest.raises(LanguageError, match=r"lang= to encode, or inputs .* fitted languages: eng-Latn, deu-Latn"):
        module({"sentence_embedding": x})
    with pytest.raises(LanguageError, match="not fitted for fra-Latn"):
        run(module, x, ["deu-Latn", "fra-Latn"])
    with pytest.raises(LanguageError, match="not a list of languages"):
        module({"sentence_embedding": x}, lang=["deu-Latn", "deu-Latn"])
    with pytest.raises(AlignmentError, match="dimension 3"):
        run(module, torch.ones(2, 3), ["deu-Latn"] * 2)
    assert run(module, x, ["deu-Latn"] * 2, lang="nonsense").shape == (2, 16)  # the text's own language goes first
    free = Aligned.of(LSAR().fit(parallel))
    assert torch.equal(free({"sentence_embedding": x})["sentence_embedding"], run(free, x, ["q", "r"]))


def test_refusals(parallel, tmp_path):
    with pytest.raises(AlignmentError, match="not fitted"):
        Aligned.of(Centered())
    with pytest.raises(AlignmentError, match="to_pivot"):
        Aligned.of(AffineMap(direction="from_pivot").fit(parallel))
    Aligned.of(Centered().fit(parallel)).save(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"format": 2}))
    with pytest.raises(AlignmentError, match="format 2"):
        Aligned.load(str(tmp_path))


def test_the_folded_map_of_a_language_is_its_map(parallel):
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((5, 16)))
    for alignment in (make("centered+procrustes").fit(parallel), LSAR().fit(parallel)):
        module = Aligned.of(alignment)
        weight, shift = module.folded("de" if module.languages else None)
        assert weight.shape == (16, 16) and shift.shape == (16,)
        assert weight.dtype == shift.dtype == torch.float32
        np.testing.assert_allclose(x @ weight.double() + shift, run(module, x, ["deu-Latn"] * 5), atol=1e-5)
    with pytest.raises(LanguageError, match="centered needs the language of every text"):
        Aligned.of(Centered().fit(parallel)).folded()


def test_a_language_that_is_to_be_identified_is_kept_as_that(parallel):
    alignment = Centered().fit(parallel)
    shapes = {name: stack.shape for name, stack in alignment.factors().items()}
    module = Aligned("centered", 16, alignment.languages_, shapes, default_lang="auto")
    assert module.default_lang == "auto"
    with pytest.raises(LanguageError, match='lang="auto" does not work with this backbone'):
        module.codes(["deu-Latn", None], None, 2)
    assert Aligned("centered", 16, alignment.languages_, shapes, default_lang="de").codes([None], None, 1) == [
        "deu-Latn"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"languages": ["deu-Latn", "deu-Latn", "tur-Latn"]}, "one map per language"),
        ({"languages": ["deu-Latn", "eng-Latn"]}, "one map per language"),
        ({"languages": "deu"}, "one map per language"),
        ({"shapes": {"shift": [10**12, 16]}}, "one map per language"),
        ({}, "not finite"),
    ],
)
def test_maps_that_do_not_fit_their_languages_are_refused(parallel, tmp_path, change, message):
    """Before memory of their size is asked for."""
    Aligned.of(Centered().fit(parallel)).save(str(tmp_path))
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, **change}))
    if not change:
        weights = {name: array * np.nan for name, array in load_file(tmp_path / "model.safetensors").items()}
        save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(AlignmentError, match=message):
        Aligned.load(str(tmp_path))


def test_the_import_path_is_a_file_format():
    assert f"{Aligned.__module__}.{Aligned.__qualname__}" == "xalign_models.alignments.module.Aligned"


def test_alignments_do_not_import_torch():
    import subprocess
    import sys

    code = "import sys, xalign_models.alignments; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("code", ["de", "deu", "de-DE", "deu_Latn"])
def test_a_language_is_the_same_in_every_form(code):
    from xalign_models.alignments.centered import Centered

    rng = np.random.default_rng(0)
    alignment = Centered().fit(
        {one: rng.standard_normal((20, 4)) + i for i, one in enumerate(("deu-Latn", "eng-Latn"))}
    )
    rows = torch.from_numpy(rng.standard_normal((3, 4)))
    module = Aligned.of(alignment)
    expected = module({"sentence_embedding": rows}, lang="deu-Latn")["sentence_embedding"]
    for features in ({"lang": [code] * 3}, {"lang": ["deu-Latn", code, code]}):
        torch.testing.assert_close(module({"sentence_embedding": rows, **features})["sentence_embedding"], expected)
    torch.testing.assert_close(module({"sentence_embedding": rows}, lang=code)["sentence_embedding"], expected)
    np.testing.assert_allclose(alignment.transform(rows.numpy(), code), expected.numpy(), atol=1e-6)
