"""Models with routes for queries and documents: sentence-transformers' own vectors, plain and aligned."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router, StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

import xalign_models
from tests.xalign_models.conftest import QUICK
from xalign_models.alignments import METHODS
from xalign_models.backbones.inputs import with_side
from xalign_models.backbones.router import sides_of
from xalign_models.errors import ModelError
from xalign_models.models.building import build, load_encoder
from xalign_models.models.names import find_spec, locate
from xalign_models.store import open_store

TEXTS = [f"w{i} w{i * 7 % 100} w{i * 3 % 100}" for i in range(24)]
SIDES = ("query", "document")
PROMPTS = {"query": "w9 ", "document": "w8 w7 "}


def static(width=16):
    vocabulary = {"[UNK]": 0, **{f"w{i}": i + 1 for i in range(100)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(101, width, generator=torch.Generator().manual_seed(0))
    return StaticEmbedding(tokenizer, embedding_weights=weights)


def dense(seed):
    layer = Dense(16, 16, bias=True, activation_function=torch.nn.Tanh())
    layer.linear.weight.data = torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))
    return layer


@pytest.fixture(params=["static queries", "dense layers", "two transformers", "mappings"])
def routed(request, tiny_model, make_model, workdir):
    """Directory of a model with routes, and the model itself."""
    bert, pooling, _ = SentenceTransformer(str(tiny_model), device="cpu")
    if request.param == "static queries":
        modules = [Router.for_query_document([static()], [bert, pooling])]
    elif request.param == "dense layers":
        modules = [bert, pooling, Router.for_query_document([dense(1)], [dense(2)], default_route="query")]
    elif request.param == "two transformers":
        other = SentenceTransformer(str(make_model(workdir / "other", intermediate_size=48)), device="cpu")
        modules = [Router({"query": [bert, pooling], "document": list(other)[:2]}, allow_empty_key=False)]
    else:
        routes = {"small": [static()], "large": [bert, pooling]}
        modules = [Router(routes, route_mappings={("query", "text"): "small", ("document", None): "large"})]
    model = SentenceTransformer(modules=[*modules, Normalize()], prompts=PROMPTS, device="cpu")
    model.save_pretrained(str(workdir / "routed"), create_model_card=False)
    return workdir / "routed", model


def theirs(model, side, texts=TEXTS):
    return model.encode_query(texts) if side == "query" else model.encode_document(texts)


def ours(encoder, side, languages=(None,) * 24):
    return encoder.encode_texts(TEXTS, languages, encoder.prompts[side], side=side)


def test_each_side_is_sentence_transformers_own_and_stored_apart(routed):
    folder, model = routed
    spec = find_spec(str(folder))
    store = open_store()
    encoder, again = (load_encoder(spec, device="cpu", store=store) for _ in range(2))
    built = build(spec, device="cpu")
    for side in SIDES:
        wanted = theirs(model, side)
        assert np.abs(ours(encoder, side) - wanted).max() < 1e-6
        assert np.abs(ours(again, side) - wanted).max() < 1e-6
        assert np.abs(theirs(built, side) - wanted).max() < 1e-6
    assert encoder.raw.counts.encoded == 48
    assert again.raw.counts.encoded == 0
    assert again.raw._modules is None


def test_texts_that_are_neither_take_the_default_route_or_are_refused(routed, request):
    folder, model = routed
    encoder = load_encoder(str(folder), device="cpu")
    if "two transformers" in request.node.name:
        with pytest.raises(ModelError, match=r"no default route.*its routes are query, document"):
            encoder.encode_texts(TEXTS, [None] * 24, "")
    else:
        assert np.abs(encoder.encode_texts(TEXTS, [None] * 24, "") - model.encode(TEXTS)).max() < 1e-6


def test_a_side_without_a_route_is_refused(workdir):
    old = SentenceTransformer(modules=[Router({"query": [static()], "doc": [static()]})], device="cpu")
    old.save_pretrained(str(workdir / "old"), create_model_card=False)
    with pytest.raises(ModelError, match="no route for a document; its routes are query, doc"):
        load_encoder(str(workdir / "old"), device="cpu").encode_texts(TEXTS, [None] * 24, side="document")
    with pytest.raises(ModelError, match="leave out --layer and --pooling"):
        load_encoder(str(workdir / "old"), device="cpu", layer=1).encode_texts(TEXTS, [None] * 24)


@pytest.mark.parametrize("method", METHODS)
def test_every_alignment_goes_on_top_and_is_saved(workdir, tiny_model, write_text, method):
    bert, pooling, _ = SentenceTransformer(str(tiny_model), device="cpu")
    plain = SentenceTransformer(modules=[Router.for_query_document([static()], [bert, pooling])], device="cpu")
    plain.save_pretrained(str(workdir / "routed"), create_model_card=False)
    text, params = f"own:{write_text(workdir / 'fit', 60)}", QUICK.get(method, {})
    model = xalign_models.fit(method, backbone=str(workdir / "routed"), corpus=text, device="cpu", **params)
    xalign_models.save(model, "aligned")
    loaded = xalign_models.load("aligned", device="cpu")
    encoders = [load_encoder(each, device="cpu", store=open_store()) for each in (model.xalign_spec, "aligned")]
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    tail = list(model)[1:]
    for side in SIDES:
        features = {"sentence_embedding": torch.from_numpy(theirs(plain, side)), "lang": ["deu-Latn"] * 24}
        features["prompt"] = with_side(side if side in sides_of(plain) else "", "")
        for module in tail:
            features = module(features)
        wanted = features["sentence_embedding"].detach().numpy()
        assert np.abs(theirs(model, side, inputs) - wanted).max() < 1e-6
        assert np.abs(theirs(loaded, side, inputs) - wanted).max() < 1e-6
        for encoder in encoders:
            assert np.abs(encoder.encode_texts(TEXTS, ["deu"] * 24, side=side) - wanted).max() < 1e-6


def test_an_adapter_points_to_a_model_with_routes(workdir, monkeypatch, write_text):
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    model = SentenceTransformer(modules=[static(), Router.for_query_document([dense(1)], [dense(2)])], device="cpu")
    model.save_pretrained(str(workdir / "mirror" / "org" / "routed"), create_model_card=False)
    text = write_text(workdir / "fit", 40)
    aligned = xalign_models.fit("centered", backbone="org/routed", corpus=f"own:{text}", device="cpu")
    xalign_models.save(aligned, "pointer", adapter=True)
    loaded = xalign_models.load("pointer", device="cpu")
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    for side in SIDES:
        assert np.abs(theirs(loaded, side, inputs) - theirs(aligned, side, inputs)).max() < 1e-6
    with pytest.raises(ModelError, match="no stock module replaces"):
        xalign_models.save(aligned, "stock", standalone=True, lang="deu")


def test_mteb_scores_are_sentence_transformers_own(routed, workdir, request):
    """A retrieval task of mteb encodes each side by its route, with its prompt."""
    import mteb
    from mteb.mocks.mock_tasks import MockRetrievalTask

    folder, model = routed
    wanted = mteb.evaluate(copy.copy(model), MockRetrievalTask(), cache=None, show_progress_bar=False)
    found = mteb.evaluate(load_encoder(str(folder), device="cpu"), MockRetrievalTask(), cache=None)
    scores = [result.task_results[0].scores["test"][0]["main_score"] for result in (wanted, found)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_what_identifies_it(routed, workdir):
    folder, _ = routed
    first = locate(str(folder)).namespace
    config = next(folder.rglob("router_config.json"))
    settings = json.loads(config.read_text())
    settings["parameters"]["allow_empty_key"] ^= True
    config.write_text(json.dumps(settings))
    assert locate(str(folder)).namespace != first


def test_a_module_of_a_route_runs_no_code(workdir):
    folder = Path("routed")
    SentenceTransformer(modules=[Router.for_query_document([static()], [static()])], device="cpu").save_pretrained(
        str(folder), create_model_card=False
    )
    config = next(folder.rglob("router_config.json"))
    good = config.read_text()
    for bad in ("evil.Evil", "sentence_transformers.base.modules.router.Router", "os.path.join"):
        config.write_text(good.replace(f"{StaticEmbedding.__module__}.StaticEmbedding", bad))
        with pytest.raises(ModelError, match="has its own code"):
            load_encoder(str(folder), device="cpu")
    config.write_text(good.replace("query_0_StaticEmbedding", "../elsewhere"))
    with pytest.raises(ModelError, match="names a folder outside"):
        load_encoder(str(folder), device="cpu")
