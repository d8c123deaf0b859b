"""Models by name and directory: what they are called, that saved ones come back, and that no foreign code runs."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import mteb
import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import xalign_models
from xalign_models import as_mteb, assets, load, plugins
from xalign_models.alignments.module import Aligned
from xalign_models.errors import AlignmentError, DataError, LanguageError, ModelError
from xalign_models.evaluation.publishing import prepare
from xalign_models.models import api, catalogue, migration, names, saving
from xalign_models.models.building import build, load_encoder
from xalign_models.models.card import read_card
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import find_spec, locate
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec

INPUTS = [
    {"text": text, "lang": lang}
    for text, lang in (("w1 w2 w3", "deu-Latn"), ("w4", "eng-Latn"), ("", "fra-Latn"), ("w5 w6 w7 w8", "deu-Latn"))
]


@pytest.fixture
def text(workdir, write_text):
    return write_text(workdir / "fit", 40)


@pytest.fixture
def spec(tiny_model, text):
    alignment = AlignmentSpec("lir-2", "lir", (("k", 2),), (f"own:{text}",))
    return ModelSpec(find_spec(str(tiny_model)).backbone, alignment, "fit")


@pytest.fixture
def saved(spec, workdir):
    saving.save(build(spec, device="cpu"), workdir / "saved")
    return workdir / "saved"


def test_a_default_prompt_is_not_warned_of(spec, workdir, caplog, monkeypatch):
    from sentence_transformers.base import model as library

    monkeypatch.setattr(library.logger, "warning_once", library.logger.warning)  # which other tests have used up
    prompted = dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, prompts=(("default", "w1 "),)))
    saving.save(build(prompted, device="cpu"), workdir / "prompted")
    assert load(workdir / "prompted").default_prompt_name == "default"
    assert not caplog.records


def test_round_trip(spec, saved):
    expected = build(spec, device="cpu").encode(INPUTS)
    assert not np.allclose(expected, build(ModelSpec(spec.backbone), device="cpu").encode(INPUTS), atol=1e-3)
    for model in (
        load(str(saved), device="cpu"),
        SentenceTransformer(str(saved), device="cpu", trust_remote_code=True),
    ):
        np.testing.assert_allclose(model.encode(INPUTS), expected, atol=1e-6)
    encoder = load_encoder(str(saved), device="cpu")
    found = encoder.encode_texts([one["text"] for one in INPUTS], [one["lang"] for one in INPUTS])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert encoder.languages == {"deu-Latn", "eng-Latn", "fra-Latn"}


def test_loading_and_saving_are_quiet(spec, workdir, capfd):
    saving.save(build(spec, device="cpu"), workdir / "saved")
    load_encoder(str(workdir / "saved"), device="cpu").encode_texts(["w1"], ["deu"])
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_the_card_of_a_saved_model(spec, saved):
    card = json.loads((saved / assets.CARD).read_text())
    assert ModelSpec.from_dict(card["spec"]) == spec
    meta = load_encoder(str(saved), device="cpu").mteb_model_meta
    assert meta.name == card["name"] == spec.name == "xalign/lir-2__tiny__fit"
    assert meta.revision == assets.directory_fingerprint(saved)[:40]
    assert meta.training_datasets is None, "nothing says what the backbone was trained on"
    assert "fitted_on" not in meta.loader_kwargs, "own text is compared row by row where it is scored"


def test_the_spec_of_a_saved_model_is_that_of_its_card(spec, saved, workdir):
    assert find_spec(str(saved)) == spec
    assert model_meta(str(saved)) == load_encoder(str(saved), device="cpu").mteb_model_meta
    plain = ModelSpec(spec.backbone)
    saving.save(build(plain, device="cpu"), workdir / "plain")
    assert find_spec("plain") == plain


def test_an_aligned_model_is_no_backbone(saved):
    """Not even one whose card no longer holds."""
    config = saved / "config_sentence_transformers.json"
    config.write_text(config.read_text() + "\n")
    twice = ModelSpec(find_spec(str(saved)).backbone)
    with pytest.raises(ModelError, match="saved is aligned already; give its backbone"):
        build(twice, device="cpu").encode(["w1"])


def test_an_edited_directory_is_known_by_its_content(spec, saved):
    original = load_encoder(str(saved), device="cpu")
    config = saved / "config_sentence_transformers.json"
    prompts = {"prompts": {"default": "w9 "}, "default_prompt_name": "default"}
    config.write_text(json.dumps({**json.loads(config.read_text()), **prompts}))
    edited = load_encoder(str(saved), device="cpu")
    assert edited.mteb_model_meta.name.startswith("local/saved-")
    assert edited.mteb_model_meta.revision != original.mteb_model_meta.revision
    assert edited.raw.namespace != original.raw.namespace
    assert edited.prompts["default"] == "w9 "


def test_a_saved_plain_model_comes_back(spec, workdir):
    plain = ModelSpec(spec.backbone)
    saving.save(build(plain, device="cpu"), workdir / "plain")
    expected = build(plain, device="cpu").encode(["w1 w2", "w3"])
    np.testing.assert_allclose(load(str(workdir / "plain"), device="cpu").encode(["w1 w2", "w3"]), expected, atol=1e-6)
    encoder = load_encoder(str(workdir / "plain"), device="cpu")
    np.testing.assert_allclose(encoder.encode_texts(["w1 w2", "w3"], [None, None]), expected, atol=1e-6)
    assert encoder.mteb_model_meta.name == plain.name


def test_a_saved_model_cannot_be_overridden(saved):
    for function in (load, load_encoder):
        with pytest.raises(ModelError, match="saved model: its layer cannot be changed"):
            function(str(saved), device="cpu", layer=1, dtype=None)


def test_only_models_of_ours_are_saved_with_a_card(saved, workdir):
    model = SentenceTransformer(str(saved), device="cpu", trust_remote_code=True)
    with pytest.raises(ModelError, match="save_pretrained"):
        saving.save(model, workdir / "again")


@pytest.mark.parametrize("write", [saving.save, lambda model, folder: model.save_pretrained(str(folder))])
def test_provenance_survives_loading_and_saving(saved, spec, workdir, write):
    write(load(str(saved), device="cpu"), workdir / "again")
    assert find_spec(str(workdir / "again")) == spec
    encoders = [load_encoder(str(folder), device="cpu") for folder in (saved, workdir / "again")]
    assert len({encoder.mteb_model_meta.name for encoder in encoders}) == 1
    readme = (workdir / "again" / "README.md").read_text()
    assert "German" in readme
    assert "lir-2" in readme


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("notes.txt", "it has other content"),
        ("modules.json", "it has other content"),
        (".git/HEAD", "it is a git repository"),
        ("", "it is a file"),
    ],
)
def test_only_a_model_is_replaced(saved, workdir, name, why):
    target, model = workdir / "target", load(str(saved), device="cpu")
    mine = target / name if name else target
    if ".git" in name:
        saving.save(model, target)  # once more replaces it
        saving.save(model, target)
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    for write in (saving.save, lambda _, folder: prepare(saved, folder)):
        with pytest.raises(ModelError, match=f"target exists and is not a model of xalign: {why}"):
            write(model, target)
        assert mine.read_text() == "mine"


def test_a_model_with_files_of_the_user_is_not_replaced(saved, workdir):
    target, model = workdir / "target", load(str(saved), device="cpu")
    saving.save(model, target)
    (target / "evaluation").mkdir()
    for name in ("evaluation/mine.csv", "notes.txt"):
        (target / name).write_text("mine")
    for write in (saving.save, lambda _, folder: prepare(saved, folder)):
        with pytest.raises(ModelError, match=r"xalign did not write \(evaluation/mine.csv and 1 more\)"):
            write(model, target)
    assert (target / "notes.txt").read_text() == "mine"
    prepare(target, workdir / "published")
    prepare(target, workdir / "published")  # the user's files are still in the model
    saving.save(model, workdir / "again")
    model.save_pretrained(str(workdir / "again"))  # writes into the directory and removes nothing
    saving.save(model, workdir / "again")


def test_a_published_default_prompt_serves_calls_without_one(tiny_model, text, workdir):
    shutil.copytree(tiny_model, workdir / "prompted")
    settings = workdir / "prompted" / "config_sentence_transformers.json"
    prompts = {"query": "w8 w8 ", "document": "w9 "}
    changed = {"prompts": prompts, "default_prompt_name": "query"}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | changed))
    texts, folder = ["w1 w2", "w3"], str(workdir / "prompted")
    published = SentenceTransformer(folder, device="cpu")
    expected = published.encode(texts)
    np.testing.assert_allclose(load(folder, device="cpu").encode(texts), expected, atol=1e-6)
    for encoder in (load_encoder(folder, device="cpu"), xalign_models.as_mteb(published, device="cpu")):
        assert encoder.prompts == {"default": "w8 w8 ", **prompts}
    fitted = xalign_models.fit("lsar", backbone=workdir / "prompted", corpus=f"own:{text}", device="cpu")
    np.testing.assert_allclose(fitted.encode(texts), fitted.encode(texts, prompt_name="query"), atol=1e-6)


def test_gaps_and_columns_of_tables_are_taken(tiny_model, text):
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu", unknown="mean")
    texts = ["w1 w2", "w3"]
    expected = model.encode(texts, lang=["de", None])
    for gap in (float("nan"), pd.NA, np.nan):
        np.testing.assert_array_equal(model.encode(pd.Series(texts, index=[3, 9]), lang=["de", gap]), expected)
    np.testing.assert_array_equal(model.encode(pd.Series(texts), lang="de"), model.encode(texts, lang="de"))
    np.testing.assert_array_equal(model.encode(iter(texts), lang="de"), model.encode(texts, lang="de"))
    for wrong in (5, ["de"]):
        with pytest.raises(LanguageError, match="is not a language code"):
            model.encode({"text": "w1", "lang": wrong})


@pytest.mark.parametrize("texts", ["a cut \ud83d", ["w1", "\udc80"], [{"text": "\ud800 w1", "lang": "de"}]])
def test_a_text_that_no_encoding_has_is_named(tiny_model, text, texts):
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu", unknown="mean")
    with pytest.raises(DataError, match="half of a surrogate pair"):
        model.encode(texts)


@pytest.mark.parametrize("lang", ["de", ["de", "en", "de"]])
def test_a_row_without_a_text_is_named_by_its_place(tiny_model, text, lang):
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu")
    encoder = xalign_models.as_mteb(model)
    for gap in (None, 3, np.float32("nan"), b"w1"):
        for texts in (["w1", "w2 w3 w4", gap], pd.Series(["w1", "w2 w3 w4", gap], index=[5, 6, 7], dtype=object)):
            with pytest.raises(DataError, match=r"^texts\[2\] is .*, which is not a text"):
                model.encode(texts, lang=lang)
        with pytest.raises(DataError, match=r"texts\[2\]"):
            model.encode([{"text": "w1"}, "w2", {"text": gap}], lang=lang)
        with pytest.raises(DataError, match=r"texts\[2\]"):
            encoder.encode_texts(["w1", "w2 w3", gap], ["de", "en", "de"])
    with pytest.raises(DataError, match=r"texts\[0\] is None"):
        model.encode(None, lang="de")


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "centered", "lsar", "residual"])
def test_a_compiled_model_has_the_same_vectors(tiny_model, text, method):
    model = load(str(tiny_model), device="cpu")
    if method:
        model = xalign_models.fit(method, backbone=tiny_model, corpus=f"own:{text}", device="cpu")
    rows = [{"text": "w1 w2", "lang": "de"}, {"text": "w3", "lang": "en"}, {"text": "w1 w2 w3 w4", "lang": "de"}]
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    expected = model.encode(rows)
    model.compile(backend=backend, dynamic=True)
    np.testing.assert_allclose(model.encode(rows), expected, atol=1e-5)
    count = len(graphs)
    assert count
    for row in rows:
        row["lang"] = "fr"  # another language needs no other graph
    model.encode(rows)
    assert len(graphs) == count


def train(model):
    with torch.no_grad():
        for parameter in model[0].parameters():
            parameter += 0.1


def test_trained_weights_are_saved_and_the_card_says_so(spec, workdir):
    model = build(spec, device="cpu")
    assert not model.tuned
    train(model)
    model.save_pretrained(str(workdir / "tuned"))
    loaded = load(workdir / "tuned", device="cpu")
    np.testing.assert_allclose(loaded.encode(INPUTS), model.encode(INPUTS), atol=1e-6)
    card = read_card(workdir / "tuned")
    assert card.claims["name"] == f"{spec.name}-tuned"
    assert card.training_datasets is None
    assert "trained further" in (workdir / "tuned" / "README.md").read_text()
    saving.save(loaded, workdir / "again")
    assert read_card(workdir / "again").claims["name"] == f"{spec.name}-tuned"


def test_a_copy_or_another_type_of_the_weights_is_no_training(spec):
    model = build(spec, device="cpu")
    assert not copy.deepcopy(model).tuned
    assert not model.half().tuned


def test_no_reference_to_a_backbone_stands_for_trained_weights(text, workdir):
    fitted = xalign_models.fit("centered", backbone="all-MiniLM-L6-v2", corpus=f"own:{text}", device="cpu")
    saving.save(fitted, workdir / "adapter", adapter=True)
    model = load(workdir / "adapter", device="cpu")
    before = model.encode(INPUTS)
    train(model[0].inner)
    assert not np.allclose(model.encode(INPUTS), before, atol=1e-3)
    with pytest.raises(ModelError, match="have changed since they were loaded"):
        saving.save(model, workdir / "lost", adapter=True)
    assert not (workdir / "lost").exists()
    saving.save(model, workdir / "saved")
    model.save_pretrained(str(workdir / "pretrained"))
    model.save(str(workdir / "called"))  # push_to_hub calls it, too
    for name in ("saved", "pretrained", "called"):
        loaded = load(workdir / name, device="cpu")
        np.testing.assert_allclose(loaded.encode(INPUTS), model.encode(INPUTS), atol=1e-6)
        assert as_mteb(loaded).mteb_model_meta.name == as_mteb(model).mteb_model_meta.name
        assert as_mteb(loaded).mteb_model_meta.name.endswith("-tuned")
        fresh = load(workdir / "adapter", device="cpu")
        fresh.load_state_dict(loaded.state_dict())  # as the trainer does with its best checkpoint
        np.testing.assert_allclose(fresh.encode(INPUTS), model.encode(INPUTS), atol=1e-6)


def test_the_trainers_own_files_do_not_void_the_card(spec, workdir):
    build(spec, device="cpu").save_pretrained(str(workdir / "checkpoint"))
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        (workdir / "checkpoint" / name).write_bytes(b"state")
    assert load(workdir / "checkpoint", device="cpu").xalign_spec == spec


def test_the_token_limit_of_a_reference_is_set_and_saved(text, workdir):
    fitted = xalign_models.fit("centered", backbone="all-MiniLM-L6-v2", corpus=f"own:{text}", device="cpu")
    saving.save(fitted, workdir / "adapter", adapter=True)
    model, inputs = load(workdir / "adapter", device="cpu"), [{"text": "w1 " * 40, "lang": "de"}]
    assert model.max_seq_length == fitted.max_seq_length
    fitted.max_seq_length = model.max_seq_length = 4
    model.save_pretrained(str(workdir / "short"))
    short = load(workdir / "short", device="cpu")
    assert short.max_seq_length == 4
    for other in (model, short):
        np.testing.assert_allclose(other.encode(inputs), fitted.encode(inputs), atol=1e-6)
    encoder = as_mteb(workdir / "short", device="cpu")
    np.testing.assert_allclose(encoder.encode_texts([inputs[0]["text"]], ["de"]), fitted.encode(inputs), atol=1e-6)


def test_languages_of_a_list_reach_inputs_that_are_mappings(tiny_model, text):
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu", default_lang="eng")
    for given in ({"text": "w1 w2"}, {"text": "w1 w2", "lang": None}, {"text": "w1 w2", "lang": "de"}):
        np.testing.assert_array_equal(model.encode([given], lang=["de"]), model.encode(["w1 w2"], lang="de"))
    kept = {"text": "w1 w2", "lang": "fr"}
    np.testing.assert_array_equal(model.encode([kept], lang=["de"]), model.encode(["w1 w2"], lang="fr"))
    for invalid in (3, {"de", "fr"}):  # a set has no order
        with pytest.raises(LanguageError, match="is not a language code"):
            model.encode(["w1", "w2"], lang=invalid)
    with pytest.raises(LanguageError, match="one for each text of a list"):
        model.encode(kept, lang=["de", "fr"])  # as many as the row has keys
    expected = model.encode(["w1", "w2"], lang=["de", "fr"])
    np.testing.assert_array_equal(model.encode(sentences=["w1", "w2"], lang=iter(["de", "fr"])), expected)
    pair = ("w1", "w2")  # which sentence-transformers joins
    np.testing.assert_array_equal(model.encode([pair], lang=["de"]), model.encode([pair], lang="de"))


def test_a_shortened_model_is_scored_as_it_encodes(tiny_model, text, workdir):
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu")
    whole = xalign_models.as_mteb(model).mteb_model_meta.revision
    model.truncate_dim = 8
    saving.save(model, workdir / "short")
    expected = model.encode(INPUTS, normalize_embeddings=True)
    for short in (model, workdir / "short"):
        encoder = xalign_models.as_mteb(short, device="cpu")
        texts, codes = ([row[key] for row in INPUTS] for key in ("text", "lang"))
        np.testing.assert_allclose(encoder.encode_texts(texts, codes), expected, atol=1e-6)
        assert encoder.mteb_model_meta.revision != whole


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"layr": 6}, "no layr; its fields are model, "),
        ({"layer": 1, "x": 2}, "no x; "),
        ({"name": "mine"}, "no name; its fields are model, "),
    ],
)
def test_unknown_fields_of_a_backbone_are_named(tiny_model, overrides, said):
    with pytest.raises(ModelError, match=said):
        load(str(tiny_model), **overrides)


@pytest.mark.parametrize(("similarity", "said"), [("dot", 1), ("cosine", 0)])
def test_a_model_for_another_similarity_is_told(tiny_model, workdir, caplog, similarity, said):
    SentenceTransformer(str(tiny_model), device="cpu", similarity_fn_name=similarity).save(str(workdir / "made"))
    load(workdir / "made", device="cpu")
    assert caplog.text.count(f"is meant for the similarity {similarity}; xalign compares by cosine") == said


def test_what_is_no_name_of_a_model_is_refused():
    with pytest.raises(ModelError, match="not by a value of type NoneType"):
        load(None)


@pytest.mark.parametrize("limit", [0, -3, 2.5])
def test_a_limit_below_one_is_refused(tiny_model, text, limit):
    with pytest.raises(AlignmentError, match=f"limit={limit}: give 1 or more"):
        xalign_models.fit("lsar", backbone=str(tiny_model), corpus=f"own:{text}", limit=limit)
    with pytest.raises(AlignmentError, match=f"limit={limit}: give 1 or more"):
        api.recommend(backbone=tiny_model, corpus=f"own:{text}", languages="de,en", limit=limit)


def test_files_can_be_read_by_others(saved):
    modes = {path.stat().st_mode & 0o777 for path in saved.rglob("*") if path.is_file()}
    assert modes == {0o644}


def test_maps_that_do_not_fit_their_card_are_refused(saved):
    (path,) = saved.glob("*_Aligned/model.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ModelError, match="maps do not match"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize(
    "claims",
    [
        {"name": "xalign/plain__all-MiniLM-L6-v2"},
        {"name": "../../outside/model"},
        {"name": "xalign/.."},
        {"backbone": "0" * 64, "revision": "1" * 40},
        {"revision": "../../x"},
    ],
)
def test_a_forged_card_names_nothing_that_is_not_its_own(saved, claims):
    """Results and stored vectors go by the content of the files, and no registered name is taken."""
    genuine = load_encoder(str(saved), device="cpu")
    path = saved / assets.CARD
    path.write_text(json.dumps({**json.loads(path.read_text()), **claims}))
    forged = load_encoder(str(saved), device="cpu")
    assert forged.raw.namespace == genuine.raw.namespace
    assert claims.get("backbone") not in {forged.raw.namespace}
    assert forged.mteb_model_meta.revision == genuine.mteb_model_meta.revision
    assert forged.mteb_model_meta.name not in names.list_models()
    assert ".." not in forged.mteb_model_meta.name


@pytest.mark.parametrize("trained", [False, True])
def test_a_directory_never_takes_a_registered_name(tiny_model, make_model, workdir, trained):
    """By a card that is true to its files, which anybody can write; or by its own name."""
    registered = names.list_models()[0]
    spec = catalogue.specs()[registered]
    folder = shutil.copytree(tiny_model, workdir / spec.backbone.name)
    elsewhere = dataclasses.replace(spec.backbone, model=str(make_model(workdir / "other", num_hidden_layers=1)))
    claims = {"spec": ModelSpec(elsewhere).to_dict(), "name": registered}
    content = {"content": assets.directory_fingerprint(folder)}
    (folder / "xalign.json").write_text(json.dumps({**claims, **content, **({"training": {}} if trained else {})}))
    located = locate(str(folder))
    assert located.name not in names.list_models()
    assert model_meta(str(folder)).name == located.name
    assert located.spec is not None
    assert Path(located.spec.backbone.model).samefile(folder)


def test_a_trained_model_has_a_registered_name_where_training_puts_it_alone(tiny_model, workdir):
    """Its card could be anybody's: elsewhere, its results would be shown as the registered model's."""
    spec = next(spec for spec in catalogue.specs().values() if spec.backbone.tuned)
    own, stranger = names.directory_of(spec.name), workdir / "stranger"
    for folder in (own, stranger):
        shutil.copytree(tiny_model, folder)
        claims = {"spec": spec.to_dict(), "name": spec.name, "training": {}}
        (folder / "xalign.json").write_text(json.dumps({**claims, "content": assets.directory_fingerprint(folder)}))
    assert locate(spec.name).name == locate(str(own)).name == spec.name
    assert locate(str(stranger)).name not in names.list_models()
    own.rename(own.with_name("lusifer__another"))
    assert locate("lusifer__another").name not in names.list_models()


def test_a_damaged_model_is_told(saved, workdir, caplog):
    """A flipped byte of the backbone gives another model, with a warning; without its modules there is none."""
    genuine = load_encoder(str(saved), device="cpu").mteb_model_meta
    weights = next(path for path in saved.rglob("model.safetensors") if path.stat().st_size > 2000)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "xalign.json is ignored" not in caplog.text
    changed = load_encoder(str(saved), device="cpu").mteb_model_meta
    assert changed.revision != genuine.revision
    assert "xalign.json is ignored" in caplog.text
    (saved / "modules.json").unlink()
    with pytest.raises(ModelError, match=r"modules\.json is missing"):
        load(str(saved))
    shutil.copytree(saved, names.directory_of("xalign/damaged"))
    assert names.trained_specs()


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "config_sentence_transformers.json", "tokenizer.json"])
def test_a_missing_file_of_the_card_is_named(saved, name):
    assert name in json.loads((saved / "xalign.json").read_text())["files"]
    (saved / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        load(str(saved))


@pytest.mark.parametrize("field", ["languages", "prompts"])
def test_maps_of_what_is_no_text_are_refused(saved, field):
    for card in [*saved.rglob("xalign.json")]:
        card.unlink()
    path = next(saved.glob("*_Aligned/config.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: [1, 2, 3]}))
    with pytest.raises((ModelError, AlignmentError), match=rf"{field}=\[1, 2, 3\] are not all texts"):
        load(str(saved))


@pytest.mark.parametrize("maps", [[], {}, [["x"]]])
def test_a_card_whose_maps_are_no_text_is_refused(saved, maps):
    card = json.loads((saved / "xalign.json").read_text())
    (saved / "xalign.json").write_text(json.dumps({**card, "maps": maps, "content": "another"}))
    with pytest.raises(ModelError, match="its maps do not match"):
        locate(str(saved))


def test_a_record_of_a_training_that_is_no_object_is_left_out(tiny_model, workdir):
    folder = shutil.copytree(tiny_model, workdir / "model")
    claims = {"spec": ModelSpec(BackboneSpec("x", "x", tuned="much")).to_dict(), "training": "much"}
    (folder / "xalign.json").write_text(json.dumps({**claims, "content": assets.directory_fingerprint(folder)}))
    assert model_meta(str(folder)).loader_kwargs["training"] == {}


def test_a_name_leads_nowhere_else(tiny_model, workdir):
    folder = shutil.copytree(tiny_model, workdir / "stranger")
    claims = {"spec": ModelSpec(BackboneSpec("x", "x")).to_dict(), "training": {}}
    (folder / "xalign.json").write_text(json.dumps({**claims, "content": assets.directory_fingerprint(folder)}))
    with pytest.raises(ModelError, match="Unknown model"):
        locate("xalign/../../stranger")


@pytest.mark.parametrize("name", ["../../x", "a\nb", "a|b", "x" * 9 + "/y"])
def test_an_invalid_name_on_a_card_is_refused(tiny_model, workdir, name):
    folder = shutil.copytree(tiny_model, workdir / "model")
    claims = {"spec": ModelSpec(BackboneSpec(name, "x")).to_dict(), "training": {}}
    (folder / "xalign.json").write_text(json.dumps({**claims, "content": assets.directory_fingerprint(folder)}))
    with pytest.raises(ModelError, match="contains an invalid name"):
        locate(str(folder))


def test_any_code_of_a_language_will_do(saved):
    model = load(str(saved), device="cpu")
    expected = model.encode([{"text": "w1 w2", "lang": "deu-Latn"}])
    for code in ("de", "deu", "de-DE", "deu_Latn", "ger"):
        np.testing.assert_allclose(model.encode([{"text": "w1 w2", "lang": code}]), expected, atol=1e-6)
        np.testing.assert_allclose(model.encode(["w1 w2"], lang=code), expected, atol=1e-6)
    next(module for module in model if isinstance(module, Aligned)).unknown = "error"
    with pytest.raises(LanguageError, match="fitted languages"):
        model.encode(["w1 w2"], lang="ja")


def test_language_handling_is_saved(tiny_model, text, workdir):
    fields = {"backbone": str(tiny_model), "corpus": f"own:{text}", "device": "cpu"}
    with pytest.raises(AlignmentError, match="moves every fitted language"):
        xalign_models.fit("centered", unknown="unaligned", **fields)
    model = xalign_models.fit("affine", default_lang="de", unknown="unaligned", **fields)
    saving.save(model, workdir / "handled")
    plain = build(ModelSpec(model.xalign_spec.backbone), device="cpu").encode(["w1 w2"])
    for loaded in (
        load("handled", device="cpu"),
        SentenceTransformer("handled", device="cpu", trust_remote_code=True),
    ):
        expected = loaded.encode(["w1 w2"], lang="deu-Latn")
        np.testing.assert_allclose(loaded.encode(["w1 w2"]), expected, atol=1e-6)
        np.testing.assert_allclose(loaded.encode(["w1 w2"], lang="ja"), plain, atol=1e-6)
        mixed = loaded.encode([{"text": "w1 w2", "lang": code} for code in ("ja", "de")])
        np.testing.assert_allclose(mixed, np.concatenate([plain, expected]), atol=1e-6)
    vectors = as_mteb(str(workdir / "handled"), device="cpu").encode_texts(["w1 w2"] * 2, ["ja", "de"])
    np.testing.assert_allclose(vectors, mixed, atol=1e-6)


def test_languages_are_identified(tiny_model, text, workdir):
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    model = xalign_models.fit(
        "centered", default_lang="auto", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu"
    )
    sentence = "Das ist ein deutscher Satz, den niemand für einen englischen halten wird."
    np.testing.assert_allclose(model.encode([sentence]), model.encode([sentence], lang="de"), atol=1e-6)
    np.testing.assert_allclose(model.encode([sentence], lang="auto"), model.encode([sentence]), atol=1e-6)


def test_two_fits_never_share_a_name(tiny_model, text, workdir, write_text):
    other = write_text(workdir / "other" / "fit", 40, seed=1)
    fields = {"backbone": str(tiny_model)}
    specs = [
        api.aligned_spec("lir", k=2, corpus=f"own:{text}", **fields),
        api.aligned_spec("lir", k=2, corpus=f"own:{text}", limit=20, **fields),
        api.aligned_spec("lir", k=2, corpus=f"own:{text}", languages=["deu", "eng"], **fields),
        api.aligned_spec("lir", k=2, corpus=f"own:{other}", **fields),
        api.aligned_spec("lir", k=3, corpus=f"own:{text}", **fields),
    ]
    assert len({spec.name for spec in specs}) == len(specs)
    assert api.aligned_spec("lir", k=2, corpus=f"own:{text}", **fields) == specs[0]


def test_english_joins_the_chosen_languages_where_the_text_has_it(tiny_model, text, workdir):
    """The card judges every language against English, which therefore needs a map of its own."""
    fields = {"backbone": str(tiny_model), "languages": ["de"]}
    for method in ("centered", "lsar"):
        spec = api.aligned_spec(method, corpus=f"own:{text}", **fields)
        assert spec.alignment.languages == ("deu-Latn", "eng-Latn")
    assert api.aligned_spec("procrustes", corpus=f"own:{text}", **fields).alignment.languages == ("deu-Latn",)
    either = [
        api.aligned_spec("lsar", corpus=f"own:{text}", **fields | {"languages": order}) for order in ("fr,de", "de,fr")
    ]
    assert either[0] == either[1]  # a saved model records the spec
    shutil.copytree(text, workdir / "alone")
    (workdir / "alone" / "eng.txt").unlink()
    assert api.aligned_spec("centered", corpus=f"own:{workdir / 'alone'}", **fields).alignment.languages == (
        "deu-Latn",
    )


def test_an_adapter_applies_modules_after_a_normalisation_once(monkeypatch, tiny_model, text, workdir):
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    dense = Dense(16, 16, activation_function=torch.nn.Identity())
    published = SentenceTransformer(modules=[*SentenceTransformer(str(tiny_model), device="cpu"), dense], device="cpu")
    published.save_pretrained(str(workdir / "mirror" / "some" / "projected"), create_model_card=False)
    model = xalign_models.fit("lsar", backbone="some/projected", corpus=f"own:{text}", device="cpu")
    migrated = migration.fit("affine", old=str(tiny_model), new="some/projected", corpus=[f"own:{text}"], device="cpu")
    for fitted in (model, migrated):
        saving.save(fitted, workdir / "small", adapter=True)
        np.testing.assert_allclose(load("small", device="cpu").encode(INPUTS), fitted.encode(INPUTS), atol=1e-6)


def test_an_adapter_is_a_map_and_a_pointer(monkeypatch, tiny_model, text, workdir):
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    shutil.copytree(tiny_model, workdir / "mirror" / "some" / "tiny")
    model = xalign_models.fit("lsar", backbone="some/tiny", corpus=f"own:{text}", device="cpu")
    saving.save(model, workdir / "whole")
    saving.save(model, workdir / "small", adapter=True)
    sizes = [sum(path.stat().st_size for path in (workdir / name).rglob("*")) for name in ("small", "whole")]
    assert not list((workdir / "small").rglob("tokenizer*"))
    assert sizes[0] < sizes[1] / 2
    texts = [row["text"] for row in INPUTS]
    for loaded in (
        load("small", device="cpu"),
        SentenceTransformer("small", device="cpu", trust_remote_code=True),
    ):
        np.testing.assert_allclose(loaded.encode(texts), model.encode(texts), atol=1e-6)
    encoder = load_encoder("small", device="cpu")
    np.testing.assert_allclose(encoder.encode_texts(texts, [None] * len(texts)), model.encode(texts), atol=1e-6)
    assert encoder.raw.namespace == locate("some/tiny").namespace, "vectors are shared with the backbone"


@pytest.mark.parametrize(("method", "lang"), [("lsar", None), ("procrustes", "de"), ("centered", "fr")])
def test_a_standalone_model_needs_no_xalign(tiny_model, text, workdir, method, lang):
    model = xalign_models.fit(method, backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    saving.save(model, workdir / "stock", standalone=True, lang=lang)
    assert "xalign" not in (workdir / "stock" / "modules.json").read_text()
    texts = [row["text"] for row in INPUTS]
    stock = SentenceTransformer(str(workdir / "stock"), device="cpu")
    np.testing.assert_allclose(stock.encode(texts), model.encode(texts, lang=lang), atol=1e-6)
    assert read_card(workdir / "stock").claims["name"] == model.xalign_spec.name


def test_a_standalone_model_names_the_tasks_of_its_fit_text(tiny_model, take_assets, workdir):
    take_assets("gettext")
    options = {"corpus": "gettext", "limit": 40, "languages": ["de", "en"], "device": "cpu"}
    model = xalign_models.fit("centered", backbone=str(tiny_model), **options)
    saving.save(model, workdir / "stock", standalone=True, lang="de")
    assert model_meta(str(workdir / "stock")).loader_kwargs["fitted_on"] == ["GettextPrecision"]


def test_a_model_in_memory_as_mteb_wants_it(tiny_model, text, workdir):
    model = xalign_models.fit("centered", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    encoder = xalign_models.as_mteb(model)
    found = encoder.encode_texts([row["text"] for row in INPUTS], [row["lang"] for row in INPUTS])
    np.testing.assert_allclose(found, model.encode(INPUTS), atol=1e-6)
    stock = SentenceTransformer(str(tiny_model), device="cpu")
    before = xalign_models.as_mteb(stock)
    stock[1].pooling_mode = ("cls",)
    after = xalign_models.as_mteb(stock)
    assert before.mteb_model_meta.revision != after.mteb_model_meta.revision
    assert before.raw.namespace != after.raw.namespace


class Scaled(Module):
    """A module with a weight that is a single number."""

    config_keys = ()

    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def forward(self, features, **kwargs):
        features["sentence_embedding"] = self.scale * features["sentence_embedding"]
        return features

    def save(self, *args, **kwargs):
        raise NotImplementedError


def test_weights_that_are_single_numbers_belong_to_a_model_in_memory(tiny_model):
    def model(scale):
        return SentenceTransformer(modules=[*SentenceTransformer(str(tiny_model), device="cpu"), Scaled(scale)])

    one, same, other = (as_mteb(model(scale), device="cpu") for scale in (2.0, 2.0, 3.0))
    assert one.raw.namespace == same.raw.namespace != other.raw.namespace
    texts = [row["text"] for row in INPUTS]
    expected = model(2.0).encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(one.encode_texts(texts, [None] * len(texts)), expected, atol=1e-6)


def test_a_model_in_memory_is_encoded_on_the_device_asked_for_and_on_its_own_by_default(tiny_model, text, monkeypatch):
    """``meta`` stands for a GPU."""
    model = xalign_models.fit("centered", backbone=tiny_model, corpus=f"own:{text}", device="cpu")
    picked = []
    monkeypatch.setattr(api, "pick_device", lambda device: picked.append(device) or device)
    texts, codes = ([row[key] for row in INPUTS] for key in ("text", "lang"))
    encoder, expected = as_mteb(model), model.encode(INPUTS)
    next(module for module in model if isinstance(module, Aligned)).to("meta")  # as model.encode moves it to a GPU
    np.testing.assert_allclose(encoder.encode_texts(texts, codes), expected, atol=1e-6)
    other = load(str(tiny_model), device="cpu")
    away = as_mteb(other, device="meta")
    assert {weight.device.type for module in away.raw.modules for weight in module.parameters()} == {"meta"}
    monkeypatch.setattr(type(other), "device", torch.device("cuda:1"))
    as_mteb(load(str(tiny_model), device="cpu"))
    assert picked == ["cpu", "meta", "cuda:1"]


def test_mteb_gets_encoders_as_they_are_and_no_other_objects(tiny_model):
    encoder = as_mteb(tiny_model, device="cpu")
    assert as_mteb(encoder) is encoder
    for other in (None, torch.nn.Identity(), 3):
        with pytest.raises(ModelError, match="by its name, directory or hub id"):
            as_mteb(other)


def test_mtebs_metadata_of_a_model_in_memory_are_those_of_the_open_model(tiny_model):
    stock, ours = SentenceTransformer(str(tiny_model), device="cpu"), load(str(tiny_model), device="cpu")
    expected = (stock.get_embedding_dimension(), stock.max_seq_length, sum(p.numel() for p in stock.parameters()))
    for model in (stock, ours):
        meta = as_mteb(model).mteb_model_meta
        assert (meta.embed_dim, meta.max_tokens, meta.n_parameters) == expected


def test_an_open_static_model_has_no_number_of_tokens():
    tokenizer = Tokenizer(WordLevel({"w1": 0, "[UNK]": 1}, unk_token="[UNK]"))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu")
    meta = as_mteb(model, device="cpu").mteb_model_meta
    assert (meta.embed_dim, meta.max_tokens) == (4, None)


def test_the_public_names_are_seen():
    assert {"load", "fit", "save", "evaluate", "list_models", "as_mteb", "LSAR"} <= set(dir(xalign_models))
    for name in xalign_models.__all__:
        assert getattr(xalign_models, name) is not None


def _module(folder, kind):
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    path.write_text(json.dumps([*modules, {"idx": 9, "name": "9", "path": "1_Pooling", "type": kind}]))


def _config(folder, name, **fields):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "1_Pooling" / "evil.py").write_text("raise SystemExit"),
        lambda folder: _module(folder, "os.path.join"),
        lambda folder: _module(folder, "xalign_models_evil.Module"),
        lambda folder: _module(folder, "sentence_transformers.models.Router"),
        lambda folder: _config(folder, "config.json", auto_map={"AutoModel": "evil.Model"}),
        lambda folder: _config(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": "a/b--evil.Tokenizer"}),
        lambda folder: _config(folder, "1_Pooling/config.json", activation_function="antigravity.geohash"),
    ],
)
def test_foreign_code_is_refused(saved, spoil):
    spoil(saved)
    for function in (load, load_encoder):
        with pytest.raises(ModelError, match="its own code"):
            function(str(saved), device="cpu")


def test_the_revision_follows_all_that_determines_the_vectors(spec, text, workdir, write_text):
    base = Recipe(spec).revision
    backbone, alignment = spec.backbone, spec.alignment
    changed = {
        "layer": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, layer=1)),
        "tokens": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, max_tokens=5)),
        "prompts": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, prompts=(("default", "w1 "),))),
        "params": dataclasses.replace(spec, alignment=dataclasses.replace(alignment, params=(("k", 3),))),
        "method": dataclasses.replace(spec, alignment=dataclasses.replace(alignment, method="centered", params=())),
        "plain": ModelSpec(backbone),
    }
    found = {what: Recipe(one).revision for what, one in changed.items()}
    weights = shutil.copytree(backbone.model, workdir / "elsewhere" / "renamed")
    moved = dataclasses.replace(spec, backbone=dataclasses.replace(backbone, name="x", model=str(weights)))
    assert Recipe(moved).revision == base  # the same weights in another place under another name
    data = (weights / "model.safetensors").read_bytes()
    (weights / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found["weights"] = Recipe(moved).revision
    write_text(text, 40, seed=1)
    found["text"] = Recipe(spec).revision
    assert len({base, *found.values()}) == 1 + len(found)


def test_find_spec(tiny_model, workdir):
    for name in ("xalign/lsar__multilingual-e5-small-q4", "lsar__multilingual-e5-small-q4"):
        assert find_spec(name).alignment.method == "lsar"
    for name in ("multilingual-e5-small-q4", "intfloat/multilingual-e5-small", str(tiny_model), "smollm2-135m-q4"):
        assert find_spec(name).alignment is None
    layered = find_spec(str(tiny_model), layer=1, pooling="cls", dtype=None)
    assert (layered.backbone.layer, layered.name) == (1, "xalign/plain__tiny-layer1-poolingcls")
    (workdir / "a__b c").mkdir()
    assert find_spec("a__b c").name == "xalign/plain__a_b-c"
    with pytest.raises(ModelError, match="Did you mean xalign/lsar__multilingual-e5-small-q4"):
        find_spec("lsar_multilingual-e5-small-q4")
    with pytest.raises(ModelError, match="--layer -1"):
        find_spec(str(tiny_model), layer=-1)


def test_registered_models_say_what_they_are():
    from xalign_tasks import register_with_mteb

    register_with_mteb()
    assert names.list_models() == sorted(names.list_models())
    for name in names.list_models():
        assert mteb.get_model_meta(name).name == name
    meta = mteb.get_model_meta("xalign/procrustes__multilingual-e5-small-q4")
    known = mteb.get_model_meta("intfloat/multilingual-e5-small")
    assert (meta.embed_dim, meta.license, meta.adapted_from) == (384, known.license, known.name)
    assert meta.training_datasets >= {*known.training_datasets, "NTREXPrecision"}
    unknown = mteb.get_model_meta("xalign/plain__gemma-3-270m-q4")
    assert (unknown.embed_dim, unknown.license, unknown.training_datasets) == (640, "gemma", None)
    assert unknown.n_parameters == 268_098_176


@pytest.mark.slow
def test_mteb_loads_a_registered_model():
    if assets.where("all-minilm-l6-v2") is None:
        pytest.skip("the asset all-minilm-l6-v2 is not installed: xalign assets install all-minilm-l6-v2")
    from xalign_tasks import register_with_mteb

    register_with_mteb()
    model = mteb.get_model("xalign/plain__all-MiniLM-L6-v2", device="cpu")
    assert model.mteb_model_meta.revision == Recipe(find_spec("all-MiniLM-L6-v2")).revision
    vectors = model.encode_texts(["A cat sat.", "A cat was sitting.", "Shares fell."], [None] * 3)
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.7 > 0.3 > similar[0, 2]


def test_provenance_survives_sentence_transformers_own_way_of_saving(saved, workdir):
    """Not the class, the files keep it: another library may load and save the model."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(saved), trust_remote_code=True, device="cpu")
    model.encode([{"text": "w1", "lang": "de"}, {"text": "w1 w2 w3", "lang": "de"}])  # pads and truncates
    model.save_pretrained(str(workdir / "again"))
    before, after = read_card(saved), read_card(workdir / "again")
    assert not (workdir / "again" / assets.CARD).exists()
    assert after.content == before.content
    assert after.claims == before.claims
    assert load(str(workdir / "again"), device="cpu").xalign_spec == before.spec


HEAD = """
from xalign_models import register
from xalign_models.alignments.module import Aligned

@register.module
class Head(Aligned):
    def map_rows(self, x, index):
        return {factor} * super().map_rows(x, index)
"""


def test_changed_code_of_a_plug_in_is_another_revision_of_the_models_that_have_its_modules(saved, workdir, apart):
    modules = json.loads((saved / "modules.json").read_text())
    own = {"type": "xalign_plugins.head.Head"}
    changed = [module | own if module["type"].endswith("Aligned") else module for module in modules]
    (saved / "modules.json").write_text(json.dumps(changed))
    for card in list(saved.rglob(assets.CARD)):
        card.unlink()
    found, in_memory = [], []
    for number, factor in enumerate((1, 1, 2)):
        file = workdir / str(number) / "head.py"
        file.parent.mkdir()
        file.write_text(HEAD.format(factor=factor))
        sys.modules.pop("xalign_plugins.head", None)
        plugins.MODULES._entries.pop(own["type"], None)
        plugins.load_plugins([str(file)])
        located = locate(str(saved))
        found.append((model_meta(str(saved)).revision, located.namespace))
        in_memory.append(as_mteb(load(str(saved), device="cpu")).mteb_model_meta.revision)
        assert len(found[-1][0]) == 40
    assert found[0] == found[1]
    assert in_memory[0] == in_memory[1] != in_memory[2]
    assert {*found[0]}.isdisjoint(found[2])
