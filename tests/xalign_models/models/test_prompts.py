"""Maps belong to a language and a prompt: fitted, saved, loaded, applied and refused by both."""

from __future__ import annotations

import dataclasses
import logging
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers import SentenceTransformer

import xalign_models
from xalign_models import alignments
from xalign_models.alignments.groups import group, of_prompt
from xalign_models.alignments.module import Aligned
from xalign_models.backbones.inputs import prompted, with_side
from xalign_models.backbones.loading import prompt_in, text_prompts
from xalign_models.errors import AlignmentError, LanguageError, ModelError
from xalign_models.models.building import build, load, load_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.vectors.applying import apply

LANGUAGES = ("deu", "eng", "fra", "spa")
CODES = ["deu-Latn", "eng-Latn", "fra-Latn", "deu-Latn"]
TEXTS = ["w1 w2", "w3", "w4 w5 w6", "w7 w1"]
PROMPTS = (("default", "w8 "), ("query", "w8 "), ("passage", "w9 w9 "))


@pytest.fixture
def specs(workdir, tiny_model, write_text):
    text = write_text(workdir / "fit", 40, LANGUAGES)
    backbone = dataclasses.replace(find_spec(str(tiny_model)).backbone, prompts=PROMPTS)

    def make(method, **params):
        return ModelSpec(backbone, AlignmentSpec(method, method, tuple(params.items()), (f"own:{text}",)), "fit")

    return make


def inputs():
    return [{"text": text, "lang": code} for text, code in zip(TEXTS, CODES, strict=True)]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_prompts_of_texts():
    e5 = {"query": "query: ", "passage": "passage: ", "default": "query: ", "document": "passage: "}
    assert text_prompts(e5) == ("query: ", "passage: ")
    assert text_prompts({}) == ("",)
    assert text_prompts({"query": "Q "}) == ("", "Q ")
    assert text_prompts({**e5, "STS": "sts: "}, names=("default", "query", "passage")) == ("query: ", "passage: ")
    sided = text_prompts({"query": "Q "}, {"query", "document"})
    assert sided == ("", with_side("query", "Q "), with_side("document", ""))
    assert text_prompts({"deu-Latn": "a", "eng-Latn": "b"}) == ("",)  # one for each language
    assert prompt_in({"deu-Latn": "a", "default": "b"}, "deu-Latn", with_side("query", "c")) == with_side("query", "a")
    assert prompt_in({"deu-Latn": "a", "default": "b"}, "fra-Latn") == "b"


@pytest.mark.parametrize("method", ["centered", "lir", "procrustes", "whitened", "lsar", "lsar+procrustes"])
@pytest.mark.filterwarnings("ignore:40 pairs", "ignore:lsar")
def test_each_prompt_is_mapped_as_its_own_fit_says(specs, method):
    spec = specs(method)
    encoder, model = load_encoder(spec, device="cpu"), build(spec, device="cpu")
    recipe = Recipe(spec, encoder.raw)
    for name, prompt in {"query": "w8 ", "passage": "w9 w9 "}.items():
        raw = encoder.raw.encode(TEXTS, prompt)
        expected = unit(recipe.fit(recipe.alignment, prompt).transform(raw, CODES))
        np.testing.assert_allclose(encoder.encode_texts(TEXTS, CODES, prompt), expected, atol=1e-5)
        np.testing.assert_allclose(model.encode(inputs(), prompt_name=name), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(inputs()), model.encode(inputs(), prompt_name="query"), atol=1e-5)


def test_centring_leaves_no_mean_under_either_prompt(specs):
    recipe = Recipe(specs("centered"), load_encoder(specs("centered"), device="cpu").raw)
    for prompt, alignment in recipe.fits.items():
        for language, rows in recipe.fit_vectors(prompt=prompt).items():
            np.testing.assert_allclose(alignment.transform(rows, language).mean(axis=0), 0, atol=1e-5)
    first, second = (alignment.means_ for alignment in recipe.fits.values())
    assert np.abs(first - second).max() > 1e-3  # the prompts lie apart


def test_a_subspace_is_that_of_the_languages_averaged_over_prompts(specs):
    recipe = Recipe(specs("lsar"), load_encoder(specs("lsar"), device="cpu").raw)
    one, other = recipe.fits.values()
    assert one.fingerprint() == other.fingerprint()
    assert one.languages_ == ("deu-Latn", "eng-Latn", "fra-Latn", "spa-Latn")
    means = sum(
        np.stack([rows.mean(axis=0) for rows in recipe.fit_vectors(prompt=prompt).values()]) for prompt in recipe.fits
    )
    basis = np.linalg.svd(means - means.mean(axis=0))[2][:3].T
    np.testing.assert_allclose(one.basis_ @ one.basis_.T, basis @ basis.T, atol=1e-5)
    module = Aligned.of(recipe.fits)
    assert module.basis.shape[0] == 1  # one map serves both
    assert module.prompts == ["w8 ", "w9 w9 "]


def test_the_maps_of_a_prompt_are_cut_from_a_fit_on_groups():
    rng = np.random.default_rng(0)
    data = {group(language, prompt): rng.normal(size=(20, 4)) for prompt in ("", "p") for language in ("a", "b")}
    fitted = alignments.make("lir+lsar", rank=1).fit(data)
    for prompt in ("", "p"):
        part = of_prompt(fitted, prompt)
        assert part.languages_ == ("a", "b")
        for language in part.languages_:
            rows = data[group(language, prompt)]
            np.testing.assert_allclose(
                part.transform(rows, language), fitted.transform(rows, group(language, prompt)), atol=1e-12
            )


@pytest.mark.parametrize("method", ["centered", "lsar"])
def test_saved_models_hold_the_maps_of_all_prompts(specs, workdir, method):
    model = build(specs(method), device="cpu")
    save(model, "saved")
    from sentence_transformers import SentenceTransformer

    for loaded in (load("saved", device="cpu"), SentenceTransformer("saved", device="cpu", trust_remote_code=True)):
        for name in ("query", "passage"):
            found = loaded.encode(inputs(), prompt_name=name)
            np.testing.assert_allclose(found, model.encode(inputs(), prompt_name=name), atol=1e-6)
    encoder = load_encoder("saved", device="cpu")
    np.testing.assert_allclose(
        encoder.encode_texts(TEXTS, CODES, "w9 w9 "), model.encode(inputs(), prompt_name="passage"), atol=1e-6
    )


def test_a_prompt_that_was_not_fitted_is_refused_or_said_once(specs, caplog):
    model = build(specs("centered"), device="cpu")
    with pytest.raises(AlignmentError, match=r"not fitted for texts with the prompt 'w5 '; fitted prompts: 'w8 ', 'w9"):
        model.encode(inputs(), prompt="w5 ")
    aligned = next(module for module in model if isinstance(module, Aligned))
    aligned.unknown_prompt = "default"
    with caplog.at_level(logging.WARNING):
        found = [model.encode(inputs(), prompt="w5 ") for _ in range(2)]
    assert sum("'w5 '" in record.message for record in caplog.records) == 1
    raw = load_encoder(specs("centered"), device="cpu").raw.encode(TEXTS, "w5 ")
    fit = Recipe(specs("centered"), load_encoder(specs("centered"), device="cpu").raw).fitted
    np.testing.assert_allclose(found[0], unit(fit.transform(raw, CODES)), atol=1e-6)


@pytest.mark.parametrize("method", ["shift", "shift+lir"])
def test_the_index_alone_is_mapped_if_asked_for(specs, tiny_model, method):
    whole, alone = (specs(method, **params) for params in ({}, {"index_only": True}))
    encoders = [load_encoder(spec, device="cpu") for spec in (whole, alone)]
    model = build(alone, device="cpu")
    for name, prompt in {"query": "w8 ", "passage": "w9 w9 "}.items():
        both, index = (encoder.encode_texts(TEXTS, CODES, prompt) for encoder in encoders)
        plain = unit(encoders[0].raw.encode(TEXTS, prompt))
        np.testing.assert_allclose(index, both if name == "passage" else plain, atol=1e-6)
        np.testing.assert_allclose(model.encode(inputs(), prompt_name=name), index, atol=1e-6)
        assert np.abs(both - plain).max() > 1e-3
    one = dataclasses.replace(alone, backbone=find_spec(str(tiny_model)).backbone)
    with pytest.raises(AlignmentError, match="index_only tells documents by their prompt"):
        build(one, device="cpu")


def test_only_named_prompts_are_fitted(specs, tiny_model):
    text = specs("centered").alignment.corpora[0]
    options = {"backbone": str(tiny_model), "corpus": text, "device": "cpu", "overrides": {"prompts": PROMPTS}}
    model = xalign_models.fit("centered", prompts=["passage"], **options)
    assert next(module for module in model if isinstance(module, Aligned)).prompts == ["w9 w9 "]
    model.encode(inputs(), prompt_name="passage")
    with pytest.raises(AlignmentError, match="'w8 '"):
        model.encode(inputs(), prompt_name="query")
    with pytest.raises(ModelError, match="has no prompt clustering"):
        xalign_models.fit("centered", prompts=["clustering"], **options)


@pytest.mark.slow
def test_a_map_of_one_prompt_becomes_stock_modules(specs, workdir):
    model = build(specs("centered"), device="cpu")
    save(
        build(ModelSpec(dataclasses.replace(specs("centered").backbone), specs("centered").alignment), device="cpu"),
        "x",
    )
    save(model, "stock", standalone=True, lang="deu-Latn", prompt="passage")
    from sentence_transformers import SentenceTransformer

    stock = SentenceTransformer("stock", device="cpu")
    german = [row for row in inputs() if row["lang"] == "deu-Latn"]
    expected = model.encode(german, prompt_name="passage")
    np.testing.assert_allclose(stock.encode([row["text"] for row in german]), expected, atol=1e-5)
    assert stock.prompts == dict.fromkeys(("passage", "query", "document"), "w9 w9 ")


@pytest.mark.parametrize("method", ["centered", "lsar"])
def test_stored_vectors_are_mapped_by_their_prompts(specs, workdir, method):
    model = build(specs(method), device="cpu")
    save(model, "saved")
    encoder = load_encoder(specs(method), device="cpu")
    names = ["query", "passage", "w9 w9 ", None]
    vectors = [
        encoder.raw.encode([text], {"query": "w8 ", None: "w8 "}.get(name, "w9 w9 "))[0]
        for text, name in zip(TEXTS, names, strict=True)
    ]
    columns = {"vector": [row.tolist() for row in vectors], "lang": CODES, "role": names}
    pq.write_table(pa.table(columns), "in.parquet")
    apply(load_maps("saved"), workdir / "in.parquet", workdir / "out", lang_column="lang", prompt_column="role")
    found = np.array(pq.read_table("out")["vector"].to_pylist())
    for row, name in enumerate(names):
        prompt = "query" if name in {None, "query"} else "passage"
        np.testing.assert_allclose(found[row], model.encode(inputs()[row], prompt_name=prompt), atol=1e-6)
    apply(load_maps("saved"), workdir / "in.parquet", workdir / "all", lang_column="lang", prompt="passage")
    expected = load_maps("saved")
    rows = expected.transform(np.array(vectors), CODES, "passage")
    np.testing.assert_allclose(np.array(pq.read_table("all")["vector"].to_pylist()), rows, atol=1e-6)
    with pytest.raises(AlignmentError, match=r"no map for the prompt 'title'; the maps are for .*'passage', 'query'"):
        apply(load_maps("saved"), workdir / "in.parquet", workdir / "no", lang_column="lang", prompt="title")


def test_an_unknown_language_gets_a_relative_or_the_mean(specs, monkeypatch):
    from xalign_models import typology

    lines = {"deu": ["IE", "Germanic"], "eng": ["IE", "Germanic"], "fra": ["IE", "Romance"], "spa": ["IE", "Romance"],
             "ita": ["IE", "Romance"], "nld": ["IE", "Germanic"], "fin": ["Uralic"]}  # fmt: skip
    bits = {"deu": "1100", "eng": "1000", "fra": "0011", "spa": "0111", "ita": "0110", "nld": "1101", "fin": "1010"}
    monkeypatch.setattr(typology, "load_uriel", lambda: {"families": lines, "syntax": bits})
    typology.nearest.cache_clear()
    model = build(specs("centered"), device="cpu")
    aligned = next(module for module in model if isinstance(module, Aligned))

    def encoded(code):
        return model.encode([{"text": "w1 w2", "lang": code}], prompt_name="passage")[0]

    with pytest.raises(LanguageError, match="ita-Latn"):
        encoded("ita-Latn")
    with pytest.raises(AlignmentError, match="moves every fitted language"):
        aligned.set_handling(None, "unaligned")
    aligned.unknown = "related"
    np.testing.assert_allclose(encoded("nld-Latn"), encoded("deu-Latn"), atol=1e-6)
    np.testing.assert_allclose(encoded("ita-Latn"), encoded("spa-Latn"), atol=1e-6)
    raw = load_encoder(specs("centered"), device="cpu").raw.encode(["w1 w2"], "w9 w9 ")
    mean = raw - aligned.shift[len(LANGUAGES) :].mul(-1).mean(0).numpy()  # the passage's maps follow the query's
    for code in ("fin-Latn", "tha-Thai"):  # of no fitted family; not in URIEL
        np.testing.assert_allclose(encoded(code), unit(mean)[0], atol=1e-6)
    aligned.unknown = "mean"
    np.testing.assert_allclose(encoded("ita-Latn"), unit(mean)[0], atol=1e-6)
    Aligned.of(Recipe(specs("procrustes"), load_encoder(specs("procrustes"), device="cpu").raw).fits).set_handling(
        None, "unaligned"
    )
    typology.nearest.cache_clear()


def test_each_corpus_has_the_same_weight(workdir, tiny_model, write_text):
    few, many = (write_text(workdir / name, rows, LANGUAGES, seed) for name, rows, seed in (("a", 10, 1), ("b", 40, 2)))
    backbone = find_spec(str(tiny_model)).backbone

    def means(*folders):
        corpora = tuple(f"own:{folder}" for folder in folders)
        spec = ModelSpec(backbone, AlignmentSpec("c", "centered", (), corpora), "fit")
        return Recipe(spec, load_encoder(spec, device="cpu").raw).fitted.means_

    np.testing.assert_allclose(means(few, many), (means(few) + means(many)) / 2, atol=1e-7)


def test_damaged_shapes_are_refused():
    with pytest.raises(AlignmentError, match="one map per language and prompt"):
        Aligned("centered", 4, ["a", "b"], {"shift": (3, 4)}, prompts=["x", "y"])
    with pytest.raises(AlignmentError, match="choose error or default"):
        Aligned("centered", 4, ["a"], {"shift": (1, 4)}, unknown_prompt="maybe")
    module = Aligned("centered", 4, ["eng-Latn"], {"shift": (2, 4)}, prompts=["x", "y"])
    with pytest.raises(AlignmentError, match="texts with an unknown prompt"):
        module({"sentence_embedding": torch.zeros(1, 4), "lang": ["eng-Latn"]})


def test_a_standalone_model_has_one_prompt_for_queries_and_documents(specs, workdir):
    model = build(specs("centered"), device="cpu")
    save(model, workdir / "alone", standalone=True, lang="deu-Latn", prompt="passage")
    alone = SentenceTransformer(str(workdir / "alone"), device="cpu")
    expected = model.encode([{"text": text, "lang": "deu-Latn"} for text in TEXTS], prompt_name="passage")
    for encode in (alone.encode, alone.encode_query, alone.encode_document):
        np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-5)


def test_the_prompt_of_passages_is_that_of_documents(specs):
    model = build(specs("centered"), device="cpu")
    expected = model.encode(inputs(), prompt_name="passage")
    np.testing.assert_array_equal(model.encode_document(inputs()), expected)
    assert not np.allclose(model.encode_query(inputs()), expected, atol=1e-3)


@pytest.mark.parametrize("prompts", [(), PROMPTS[:1], PROMPTS[1:], (*PROMPTS[:1], ("document", "w9 "))])
def test_queries_and_documents_have_the_prompts_of_a_run(specs, prompts):
    spec = specs("centered")
    spec = dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, prompts=prompts))
    encoder, model = load_encoder(spec, device="cpu"), build(spec, device="cpu")
    for role, encode in {"query": model.encode_query, "document": model.encode_document}.items():
        prompt = encoder.prompt_for(SimpleNamespace(name="task", type="type"), role)
        np.testing.assert_allclose(encode(inputs()), encoder.encode_texts(TEXTS, CODES, prompt), atol=1e-5)


@pytest.mark.parametrize("default", ["w8 ", "w8 [TEXT] w9", ""])
@pytest.mark.parametrize("german", ["w5 ", "w5 [TEXT] w6"])
def test_a_default_prompt_serves_the_languages_without_one(specs, default, german):
    spec = specs("centered")
    backbone = dataclasses.replace(spec.backbone, prompts=(("deu-Latn", german), ("default", default)))
    encoder = load_encoder(ModelSpec(backbone), device="cpu")
    bare = load_encoder(ModelSpec(dataclasses.replace(backbone, prompts=())), device="cpu")
    chosen = [german if code == "deu-Latn" else default for code in CODES]
    expected = bare.encode_texts([prompted(*pair) for pair in zip(chosen, TEXTS, strict=True)], CODES)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS, CODES), expected, atol=1e-5)
    plain = build(ModelSpec(backbone), device="cpu")
    np.testing.assert_allclose(plain.encode(inputs()), expected, atol=1e-5)
    np.testing.assert_allclose(plain.encode(TEXTS[1:3]), expected[1:3], atol=1e-5)  # of no known language
    german = plain.encode([{"text": text, "lang": "de"} for text in TEXTS])
    np.testing.assert_array_equal(plain.encode(TEXTS, lang="de"), german)
    model = build(dataclasses.replace(spec, backbone=backbone), device="cpu")
    aligned = load_encoder(dataclasses.replace(spec, backbone=backbone), device="cpu").encode_texts(TEXTS, CODES)
    save(model, "saved")
    for one in (model, load("saved", device="cpu")):
        for encode in (one.encode, one.encode_query, one.encode_document):
            np.testing.assert_allclose(encode(inputs()), aligned, atol=1e-5)
    np.testing.assert_allclose(load_encoder("saved", device="cpu").encode_texts(TEXTS, CODES), aligned, atol=1e-5)


def test_a_prompt_of_a_role_does_not_silently_replace_those_of_languages(specs):
    spec = specs("centered")
    prompts = (("deu-Latn", "w5 "), ("default", "w8 "), ("query", "w9 "))
    model = build(ModelSpec(dataclasses.replace(spec.backbone, prompts=prompts)), device="cpu")
    for encode in (model.encode_query, lambda rows: model.encode(rows, "query")):
        with pytest.raises(ModelError, match="'query' would replace those of deu-Latn. Call encode with lang="):
            encode(inputs())
    save(model, "saved")
    with pytest.raises(ModelError, match="'query' would replace those of deu-Latn"):
        load("saved", device="cpu").encode_query(inputs())
    given = model.encode(inputs(), prompt=model.prompts["query"])
    np.testing.assert_array_equal(model.encode_query(inputs(), prompt="w9 "), given)
    np.testing.assert_allclose(model.encode_document(inputs()), model.encode(inputs()), atol=1e-6)  # it has no prompt
    german = model.encode(inputs(), prompt="w5 ")
    np.testing.assert_array_equal(model.encode(inputs(), prompt_name="deu-Latn"), german)


def test_an_empty_prompt_of_documents_is_kept_from_the_default_one(workdir, tiny_model, write_text):
    published = SentenceTransformer(str(tiny_model), prompts={"query": "w8 "}, default_prompt_name="query")
    published.save_pretrained("published", create_model_card=False)
    options = {"backbone": "published", "corpus": f"own:{write_text(workdir / 'fit', 40, LANGUAGES)}", "device": "cpu"}
    save(xalign_models.fit("centered", **options), "aligned")
    for name in ("published", "aligned"):
        model, encoder = load(name, device="cpu"), load_encoder(name, device="cpu")
        for role, encode in {"query": model.encode_query, "document": model.encode_document}.items():
            prompt = encoder.prompt_for(SimpleNamespace(name="task", type="type"), role)
            assert prompt == {"query": "w8 ", "document": ""}[role]
            np.testing.assert_allclose(encode(inputs()), encoder.encode_texts(TEXTS, CODES, prompt), atol=1e-5)
        np.testing.assert_allclose(model.encode(inputs()), encoder.encode_texts(TEXTS, CODES), atol=1e-5)


@pytest.mark.parametrize("default", ["default", "other"])
def test_an_empty_prompt_that_sentence_transformers_adds_means_the_default_one(workdir, tiny_model, default):
    model = SentenceTransformer(str(tiny_model), prompts={default: "w8 "}, default_prompt_name=default)
    model.save_pretrained("published", create_model_card=False)
    for encoder in (load_encoder("published", device="cpu"), xalign_models.as_mteb(model, device="cpu")):
        for role in ("query", "document"):
            assert encoder.prompt_for(SimpleNamespace(name="task", type="type"), role) == "w8 "


@pytest.mark.parametrize("chosen", ["query", None])
def test_a_prompt_named_default_serves_texts_only_if_it_is_the_chosen_one(workdir, tiny_model, chosen):
    named = {"query": "w7 ", "default": "w8 "}
    model = SentenceTransformer(str(tiny_model), prompts=named, default_prompt_name=chosen)
    model.save_pretrained("published", create_model_card=False)
    for encoder in (load_encoder("published", device="cpu"), xalign_models.as_mteb(model, device="cpu")):
        vectors = encoder.encode_texts(TEXTS, CODES)
        np.testing.assert_allclose(vectors, model.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    np.testing.assert_allclose(
        load("published", device="cpu").encode(TEXTS, normalize_embeddings=True), vectors, atol=1e-5
    )


def test_names_of_prompts_have_any_form(tiny_model, write_text, workdir):
    options = {"backbone": tiny_model, "corpus": f"own:{write_text(workdir / 'fit', 40, LANGUAGES)}", "device": "cpu"}
    options["overrides"] = {"prompts": dict(PROMPTS)}
    every, one = xalign_models.fit("centered", **options), xalign_models.fit("centered", prompts="query", **options)
    np.testing.assert_array_equal(
        xalign_models.fit("centered", prompts=[], **options).encode(inputs()), every.encode(inputs())
    )
    assert not np.allclose(every.encode(inputs()), load(tiny_model, device="cpu").encode(TEXTS), atol=1e-3)
    names = [xalign_models.fit("centered", prompts=p, **options).xalign_spec.name for p in (["query"], "query,passage")]
    assert len({every.xalign_spec.name, one.xalign_spec.name, *names}) == 3


def test_a_prompt_of_a_language_is_in_the_fit_of_that_language_alone(specs):
    """Whatever was fitted before, and no name of a prompt stands for a language."""
    spec, raw = specs("centered"), load_encoder(specs("centered"), device="cpu").raw

    def means(**own):
        prompts = (("default", "w8 "), *((code.replace("_", "-"), text) for code, text in own.items()))
        own_spec = dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, prompts=prompts))
        return Recipe(own_spec, raw).fitted.means_

    plain, german, both = means(), means(deu_Latn="w7 w6 "), means(deu_Latn="w7 w6 ", eng_Latn="w5 ")
    moved = [(np.abs(one - plain).max(axis=1) > 1e-3).tolist() for one in (german, both)]
    assert moved == [[True, False, False, False], [True, True, False, False]]
    np.testing.assert_array_equal(means(), plain)
    for prompts in ({"default": "w8 ", "deu-Latn": "w7 "}, {"deu-Latn": "w7 ", "eng-Latn": "w5 "}):
        options = {"backbone": spec.backbone.model, "corpus": spec.alignment.corpora[0], "device": "cpu"}
        with pytest.raises(ModelError, match="has no prompt deu-Latn; it has default."):
            xalign_models.fit("centered", prompts="deu-Latn", overrides={"prompts": prompts}, **options)
