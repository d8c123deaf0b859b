"""Cut and binary vectors, static models and adapters: as sentence-transformers and peft have them, and aligned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import quantize_embeddings
from tokenizers import Tokenizer, models, pre_tokenizers

import xalign_models
from xalign_models.errors import ModelError, XAlignError
from xalign_models.evaluation.run import run
from xalign_models.models import recipe
from xalign_models.models.building import build, load_encoder, raw_encoder
from xalign_models.models.names import find_spec, locate
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec
from xalign_models.store import open_store

TEXTS = [f"w{i} w{i * 7 % 100}" for i in range(20)]
WAYS = [
    {"truncate_dim": 5},
    {"vectors": "unit"},
    {"vectors": "binary"},
    {"truncate_dim": 8, "vectors": "binary"},
    {"vectors": "int8"},
    {"truncate_dim": 8, "vectors": "int8"},
]


@pytest.fixture
def calibrated(workdir, write_text, monkeypatch):
    """The texts that ranges of int8 vectors are measured on."""
    folder = write_text(workdir / "calibration", 30, seed=5)
    text = AlignmentSpec("int8", "centered", corpora=(f"own:{folder}",))
    monkeypatch.setattr(recipe, "CALIBRATION", text)
    return [line for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("way", WAYS)
def test_vectors_are_sentence_transformers_own(tiny_model, calibrated, way):
    spec = find_spec(str(tiny_model), **way)
    model = SentenceTransformer(str(tiny_model), device="cpu", truncate_dim=way.get("truncate_dim"))
    theirs = model.encode(TEXTS)
    if way.get("vectors") == "int8":
        theirs = quantize_embeddings(
            unit(theirs), "int8", calibration_embeddings=unit(model.encode(calibrated))
        ).astype(np.float32)
        assert np.unique(theirs).size > 50
    elif way.get("vectors") == "binary":
        bits = np.unpackbits(quantize_embeddings(theirs, "ubinary"), axis=1, count=theirs.shape[1])
        theirs = 2.0 * bits - 1
    theirs = unit(theirs)
    ours = [load_encoder(spec, device="cpu").encode_texts(TEXTS, [None] * 20), build(spec, device="cpu").encode(TEXTS)]
    for vectors in ours:
        assert np.abs(vectors - theirs).max() < 1e-6


def test_names_and_revisions_differ_and_what_is_stored_is_shared(tiny_model, calibrated):
    plain, *reduced = (find_spec(str(tiny_model), **way) for way in ({}, *WAYS))
    assert [spec.name for spec in reduced] == [
        "xalign/plain__tiny-dim5",
        "xalign/plain__tiny-vectors-unit",
        "xalign/plain__tiny-vectors-binary",
        "xalign/plain__tiny-dim8-vectors-binary",
        "xalign/plain__tiny-vectors-int8",
        "xalign/plain__tiny-dim8-vectors-int8",
    ]
    assert len({Recipe(spec).revision for spec in (plain, *reduced)}) == len(WAYS) + 1
    assert len({locate(str(tiny_model), **way).namespace for way in ({}, *WAYS)}) == 1


@pytest.mark.parametrize("way", WAYS)
def test_alignments_are_fitted_on_what_is_left_and_scored(tiny_model, workdir, write_text, monkeypatch, way):
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 20)))
    text = write_text(workdir / "fit", 40)
    model = xalign_models.fit("centered", backbone=str(tiny_model), corpus=f"own:{text}", overrides=way, device="cpu")
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    assert model.encode(inputs).shape == (20, way.get("truncate_dim", 16))
    xalign_models.save(model, "aligned")
    assert np.abs(xalign_models.load("aligned", device="cpu").encode(inputs) - model.encode(inputs)).max() < 1e-6
    spec = model.xalign_spec
    (outcome,) = run(["aligned"], ["OwnParallel"], Path("out"), device="cpu", store=open_store())
    assert outcome.error == ""
    (direct,) = run([load_encoder(spec, device="cpu")], ["OwnParallel"], Path("other"), device="cpu")
    assert direct.result.scores["test"][0]["main_score"] == outcome.result.scores["test"][0]["main_score"]


def test_the_text_of_the_ranges_is_part_of_the_revision_and_they_are_saved(tiny_model, calibrated, workdir, write_text):
    spec = find_spec(str(tiny_model), vectors="int8")
    first, model = Recipe(spec).revision, build(spec, device="cpu")
    save(model, "saved")
    write_text(workdir / "calibration", 30, seed=6)
    assert Recipe(spec).revision != first
    assert np.array_equal(xalign_models.load("saved", device="cpu").encode(TEXTS), model.encode(TEXTS))
    assert not np.array_equal(build(spec, device="cpu").encode(TEXTS), model.encode(TEXTS))
    config = next(Path("saved").glob("*_Reduced/config.json"))
    low, high = json.loads(config.read_text())["ranges"]
    config.write_text(json.dumps({"vectors": "int8", "truncate_dim": None, "ranges": [high, low]}))
    with pytest.raises(XAlignError, match="the range of each dimension"):
        xalign_models.load("saved", device="cpu")


@pytest.mark.parametrize("way", WAYS)
def test_an_adapter_keeps_what_cuts_the_vectors(tiny_model, calibrated, workdir, monkeypatch, way):
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    shutil.copytree(tiny_model, workdir / "mirror" / "org" / "tiny")
    model = build(find_spec("org/tiny", **way), device="cpu")
    save(model, "adapter", adapter=True)
    assert np.array_equal(xalign_models.load("adapter", device="cpu").encode(TEXTS), model.encode(TEXTS))
    assert locate("adapter").namespace == locate("org/tiny").namespace
    with pytest.raises(ModelError, match="no stock module replaces"):
        save(model, "stock", standalone=True)


def test_more_dimensions_than_there_are_is_refused(tiny_model, workdir):
    with pytest.raises(ModelError, match="--truncate-dim 17: the vectors have 16 dimensions"):
        load_encoder(find_spec(str(tiny_model), truncate_dim=17), device="cpu").encode_texts(TEXTS, [None] * 20)
    for bad in ({"truncate_dim": 0}, {"vectors": "int4"}):
        with pytest.raises(ModelError, match="--truncate-dim 0|--vectors int4"):
            find_spec(str(tiny_model), **bad)


@pytest.mark.parametrize("layout", ["model2vec", "StaticEmbedding"])
def test_static_models(workdir, layout):
    vocabulary = {"[UNK]": 0, **{f"w{i}": i + 1 for i in range(100)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(101, 12, generator=torch.Generator().manual_seed(0))
    folder = workdir / "static"
    theirs = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")
    if layout == "StaticEmbedding":
        theirs.save_pretrained(str(folder), create_model_card=False)
    else:
        folder.mkdir()
        save_file({"embeddings": weights}, folder / "model.safetensors")
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    raw = raw_encoder(find_spec(str(folder)).backbone, "cpu", open_store())
    assert np.abs(raw.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-6
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    assert np.abs(build(find_spec(str(folder)), device="cpu").encode(inputs) - unit(theirs.encode(TEXTS))).max() < 1e-6
    assert np.abs(raw.encode(["w3 w4"])[0] - weights[[4, 5]].mean(0).numpy()).max() < 1e-6


def test_an_adapter_directory_is_pefts_merge(workdir, make_bert, monkeypatch):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    base = make_bert(workdir / "base", [f"w{i}" for i in range(100)], initializer_range=0.5)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        tuned = get_peft_model(
            AutoModel.from_pretrained(base),
            LoraConfig(r=2, target_modules=["query"], init_lora_weights=False, task_type="FEATURE_EXTRACTION"),
        )
    tuned.save_pretrained(workdir / "adapter")
    merged = tuned.merge_and_unload()
    merged.save_pretrained(workdir / "merged")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        for folder in ("merged", "adapter"):
            (workdir / folder / name).write_bytes((base / name).read_bytes())
    monkeypatch.setenv("XALIGN_ALLOW", str(base))
    raw = (raw_encoder(find_spec(str(workdir / name)).backbone, "cpu") for name in ("adapter", "merged", "base"))
    one, two, untuned = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (each.encode(TEXTS) for each in raw)
    )
    assert np.abs(one - two).max() < 1e-6
    assert np.abs(one - untuned).max() > 1e-3
    save(build(find_spec(str(workdir / "adapter")), device="cpu"), workdir / "saved")
    again = xalign_models.load(str(workdir / "saved"), device="cpu").encode(TEXTS)
    assert np.abs(again - one).max() < 1e-6
