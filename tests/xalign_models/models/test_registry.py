"""Models by name and directory: what they are called, that saved ones come back, and that no foreign code runs."""

from __future__ import annotations

import dataclasses
import json
import shutil

import mteb
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from xalign_models import assets, load
from xalign_models.errors import ModelError
from xalign_models.models import registry
from xalign_models.specs import AlignmentSpec, ModelSpec

INPUTS = [{"text": text, "lang": lang} for text, lang in
          (("w1 w2 w3", "deu-Latn"), ("w4", "eng-Latn"), ("", "fra-Latn"), ("w5 w6 w7 w8", "deu-Latn"))]  # fmt: skip


@pytest.fixture
def text(workdir, write_text):
    return write_text(workdir / "fit", 40)


@pytest.fixture
def spec(tiny_model, text):
    alignment = AlignmentSpec("lir-2", "lir", (("k", 2),), (f"own:{text}",))
    return ModelSpec(registry.find_spec(str(tiny_model)).backbone, alignment, "fit")


@pytest.fixture
def saved(spec, workdir):
    registry.save(registry.build(spec, device="cpu"), workdir / "saved")
    return workdir / "saved"


def test_round_trip(spec, saved):
    expected = registry.build(spec, device="cpu").encode(INPUTS)
    assert not np.allclose(expected, registry.build(ModelSpec(spec.backbone), device="cpu").encode(INPUTS), atol=1e-3)
    for model in (
        load(str(saved), device="cpu"),
        SentenceTransformer(str(saved), device="cpu", trust_remote_code=True),
    ):
        np.testing.assert_allclose(model.encode(INPUTS), expected, atol=1e-6)
    encoder = registry.load_encoder(str(saved), device="cpu")
    found = encoder.encode_texts([one["text"] for one in INPUTS], [one["lang"] for one in INPUTS])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert encoder.languages == {"deu-Latn", "eng-Latn", "fra-Latn"}


def test_loading_and_saving_are_quiet(spec, workdir, capfd):
    registry.save(registry.build(spec, device="cpu"), workdir / "saved")
    registry.load_encoder(str(workdir / "saved"), device="cpu").encode_texts(["w1"], ["deu"])
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_the_card_of_a_saved_model(spec, saved):
    card = json.loads((saved / assets.CARD).read_text())
    assert ModelSpec.from_dict(card["spec"]) == spec
    meta = registry.load_encoder(str(saved), device="cpu").mteb_model_meta
    assert meta.name == card["name"] == spec.name == "xalign/lir-2__tiny__fit"
    assert meta.revision == card["revision"] == registry.revision(spec)
    assert meta.training_datasets == {"OwnParallel"}


def test_the_spec_of_a_saved_model_is_that_of_its_card(spec, saved, workdir):
    assert registry.find_spec(str(saved)) == spec
    assert registry.model_meta(str(saved)) == registry.load_encoder(str(saved), device="cpu").mteb_model_meta
    plain = ModelSpec(spec.backbone)
    registry.save(registry.build(plain, device="cpu"), workdir / "plain")
    assert registry.find_spec("plain") == plain


def test_an_aligned_model_is_no_backbone(saved):
    """Not even one whose card no longer holds."""
    config = saved / "config_sentence_transformers.json"
    config.write_text(config.read_text() + "\n")
    twice = ModelSpec(registry.find_spec(str(saved)).backbone)
    with pytest.raises(ModelError, match="saved is aligned already; give its backbone"):
        registry.build(twice, device="cpu").encode(["w1"])


def test_an_edited_directory_is_known_by_its_content(spec, saved):
    original = registry.load_encoder(str(saved), device="cpu")
    config = saved / "config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "prompts": {"default": "w9 "}}))
    edited = registry.load_encoder(str(saved), device="cpu")
    assert edited.mteb_model_meta.name == "local/saved"
    assert edited.mteb_model_meta.revision != original.mteb_model_meta.revision
    assert edited.raw.namespace != original.raw.namespace
    assert edited.prompts == {"default": "w9 "}


def test_a_saved_plain_model_comes_back(spec, workdir):
    plain = ModelSpec(spec.backbone)
    registry.save(registry.build(plain, device="cpu"), workdir / "plain")
    expected = registry.build(plain, device="cpu").encode(["w1 w2", "w3"])
    np.testing.assert_allclose(load(str(workdir / "plain"), device="cpu").encode(["w1 w2", "w3"]), expected, atol=1e-6)
    encoder = registry.load_encoder(str(workdir / "plain"), device="cpu")
    np.testing.assert_allclose(encoder.encode_texts(["w1 w2", "w3"], [None, None]), expected, atol=1e-6)
    assert encoder.mteb_model_meta.name == plain.name


def test_a_saved_model_cannot_be_overridden(saved):
    for function in (load, registry.load_encoder):
        with pytest.raises(ModelError, match="saved model: its layer cannot be changed"):
            function(str(saved), device="cpu", layer=1, dtype=None)


def test_only_models_with_a_spec_are_saved(saved, workdir):
    with pytest.raises(ModelError, match="save_pretrained"):
        registry.save(load(str(saved), device="cpu"), workdir / "again")


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
    for function in (load, registry.load_encoder):
        with pytest.raises(ModelError, match="code of its own"):
            function(str(saved), device="cpu")


def test_the_revision_follows_all_that_determines_the_vectors(spec, text, workdir, write_text):
    base = registry.revision(spec)
    backbone, alignment = spec.backbone, spec.alignment
    changed = {
        "layer": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, layer=1)),
        "tokens": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, max_tokens=5)),
        "prompts": dataclasses.replace(spec, backbone=dataclasses.replace(backbone, prompts=(("default", "w1 "),))),
        "params": dataclasses.replace(spec, alignment=dataclasses.replace(alignment, params=(("k", 3),))),
        "method": dataclasses.replace(spec, alignment=dataclasses.replace(alignment, method="centered", params=())),
        "plain": ModelSpec(backbone),
    }
    found = {what: registry.revision(one) for what, one in changed.items()}
    weights = shutil.copytree(backbone.model, workdir / "elsewhere" / "renamed")
    moved = dataclasses.replace(spec, backbone=dataclasses.replace(backbone, name="x", model=str(weights)))
    assert registry.revision(moved) == base  # the same weights in another place under another name
    data = (weights / "model.safetensors").read_bytes()
    (weights / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found["weights"] = registry.revision(moved)
    write_text(text, 40, seed=1)
    found["text"] = registry.revision(spec)
    assert len({base, *found.values()}) == 1 + len(found)


def test_find_spec(tiny_model, workdir):
    for name in ("xalign/lsar__multilingual-e5-small", "lsar__multilingual-e5-small"):
        assert registry.find_spec(name).alignment.method == "lsar"
    for name in ("multilingual-e5-small", "intfloat/multilingual-e5-small", str(tiny_model), "smollm2-135m"):
        assert registry.find_spec(name).alignment is None
    layered = registry.find_spec(str(tiny_model), layer=1, pooling="cls", dtype=None)
    assert (layered.backbone.layer, layered.name) == (1, "xalign/plain__tiny-layer1-poolingcls")
    (workdir / "a__b c").mkdir()
    assert registry.find_spec("a__b c").name == "xalign/plain__a_b-c"
    with pytest.raises(ModelError, match="Did you mean xalign/lsar__multilingual-e5-small"):
        registry.find_spec("lsar_multilingual-e5-small")
    with pytest.raises(ModelError, match="--layer -1"):
        registry.find_spec(str(tiny_model), layer=-1)


def test_registered_models_say_what_they_are():
    from tasks import register_with_mteb

    register_with_mteb()
    assert registry.list_models() == sorted(registry.list_models())
    for name in registry.list_models():
        assert mteb.get_model_meta(name).name == name
    meta = mteb.get_model_meta("xalign/procrustes__multilingual-e5-small")
    known = mteb.get_model_meta("intfloat/multilingual-e5-small")
    assert (meta.embed_dim, meta.license, meta.adapted_from) == (384, known.license, known.name)
    assert meta.training_datasets >= known.training_datasets


@pytest.mark.slow
def test_mteb_loads_a_registered_model():
    if assets.where("all-minilm-l6-v2") is None:
        pytest.skip("the asset all-minilm-l6-v2 is not installed: xalign assets install all-minilm-l6-v2")
    from tasks import register_with_mteb

    register_with_mteb()
    model = mteb.get_model("xalign/plain__all-MiniLM-L6-v2", device="cpu")
    assert model.mteb_model_meta.revision == registry.revision(registry.find_spec("all-MiniLM-L6-v2"))
    vectors = model.encode_texts(["A cat sat.", "A cat was sitting.", "Shares fell."], [None] * 3)
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.7 > 0.3 > similar[0, 2]
