"""A ready map: the pivot's texts by the index's model, others by the multilingual one and the map."""

from __future__ import annotations

import numpy as np
import pytest

import xalign_models
from xalign_models.errors import AlignmentError, ModelError
from xalign_models.models import building
from xalign_models.models.building import load
from xalign_models.models.catalogue import get_spec
from xalign_models.models.ready import Bridge
from xalign_models.models.sentence_transformer import AlignedSentenceTransformer
from xalign_models.portable.loading import READY, SavedMap, load_map

NAME = "map:multilingual-e5-small->all-MiniLM-L6-v2"
TEXTS = ["w1 w2", "w3", "w4 w5 w6", "w7 w1"]
CODES = ["es", "en", "deu-Latn", "jpn-Jpan"]


@pytest.fixture
def bridge(tiny_model, make_model, tmp_path):
    """The tiny model asks an index of another one, by a planted map."""
    rng = np.random.default_rng(0)
    arrays = {"weight": rng.standard_normal((1, 16, 16)), "shift": rng.standard_normal((3, 16))}
    settings = {"format": 1, "dim": 16, "normalise": True, "default_lang": None, "unknown": "mean", "prompts": {},
                "unknown_prompt": "default", "pivot": "eng-Latn",
                "languages": {"eng-Latn": 0, "spa-Latn": 1, "deu-Latn": 2}}  # fmt: skip
    queries, index = load(str(tiny_model), device="cpu"), load(str(make_model(tmp_path / "index")), device="cpu")
    index[0].auto_model.embeddings.word_embeddings.weight.data.mul_(-1.5)
    return queries, index, arrays, Bridge.of(queries, index, SavedMap(settings, arrays))


def test_the_pivot_takes_the_model_of_the_index_and_others_the_map(bridge):
    queries, index, arrays, model = bridge
    found = model.encode([{"text": text, "lang": code} for text, code in zip(TEXTS, CODES, strict=True)])
    np.testing.assert_allclose(found[1], index.encode(TEXTS[1]), atol=1e-6)
    shifts = {0: arrays["shift"][1], 2: arrays["shift"][2], 3: arrays["shift"].mean(axis=0)}
    for row, shift in shifts.items():
        one = queries.encode(TEXTS[row]) @ arrays["weight"][0] + shift
        np.testing.assert_allclose(found[row], one / np.linalg.norm(one), atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS, lang="es")[0], found[0], atol=1e-6)
    assert model.get_embedding_dimension() == 16


def test_a_direction_that_the_map_stretches_and_its_shift_cancels_costs_no_digits(bridge):
    queries, _, arrays, model = bridge
    arrays["weight"] += 5000
    vectors = queries.encode(TEXTS, normalize_embeddings=True).astype(np.float64)
    arrays["shift"] -= 5000 * vectors[0].sum()
    expected = model[0].maps.transform(vectors, "spa-Latn")
    np.testing.assert_allclose(model.encode(TEXTS, lang="es"), expected, atol=1e-6)


def test_languages_are_found(bridge):
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    *_, model = bridge
    sentence = "Das ist ein deutscher Satz, den niemand für einen englischen halten wird."
    np.testing.assert_allclose(model.encode([sentence, "12"])[0], model.encode([sentence], lang="de")[0], atol=1e-6)


def test_the_ready_map_is_small_and_loads_both_models_by_name(monkeypatch):
    names = []
    monkeypatch.setattr(building, "locate", lambda name, **_: names.append(name) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load(NAME, device="cpu")
    assert names == ["multilingual-e5-small-q4"]
    maps = load_map(NAME)
    assert sum(path.stat().st_size for path in READY.rglob("*") if path.is_file()) < 1 << 20
    rows = np.eye(384, dtype=np.float32)[:3]
    np.testing.assert_allclose(np.linalg.norm(maps.transform(rows, ["de", "en", "fin"]), axis=1), 1, atol=1e-5)
    weight, shift = maps.arrays["weight"][0].astype(float), maps.arrays["shift"][maps.settings["languages"]["deu-Latn"]]
    expected = rows[:1] @ weight + shift
    np.testing.assert_allclose(maps.transform(rows[:1], "deu"), expected / np.linalg.norm(expected), atol=1e-5)
    with pytest.warns(UserWarning, match="length 5, those of the fit 1"):  # the vectors before e5 normalises them
        maps.transform(5 * rows, "de")


def test_other_names_overrides_and_saving_are_refused(bridge, tmp_path):
    with pytest.raises(AlignmentError, match=r"there are map:multilingual-e5-small->all-MiniLM-L6-v2"):
        load("map:../../etc->x")
    with pytest.raises(ModelError, match="layer cannot be changed"):
        load(NAME, layer=3)
    with pytest.raises(ModelError, match="only `xalign serve` takes a ready map"):
        get_spec(NAME)
    with pytest.raises(ModelError, match="not saved"):
        AlignedSentenceTransformer.adopt(bridge[3], None).save_pretrained(str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()
    assert xalign_models.load is load


def test_mteb_gives_a_ready_map_the_languages_of_the_texts(bridge):
    *_, model = bridge
    encoder = xalign_models.as_mteb(model, device="cpu")
    texts = ["Das ist ein deutscher Satz, den niemand für einen englischen halten wird."] * len(CODES)
    inputs = [{"text": text, "lang": code} for text, code in zip(texts, CODES, strict=True)]
    np.testing.assert_allclose(encoder.encode_texts(texts, CODES), model.encode(inputs), atol=1e-6)
    model.truncate_dim = 8
    encoder, short = xalign_models.as_mteb(model, device="cpu"), model.encode(inputs, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_texts(texts, CODES), short, atol=1e-6)


def test_another_map_or_prompt_is_another_revision_of_a_ready_map(bridge):
    queries, index, arrays, model = bridge
    settings = model[0].maps.settings

    def revision(settings=settings, **other):
        return xalign_models.as_mteb(
            Bridge.of(queries, index, SavedMap(settings, {**arrays, **other})), device="cpu"
        ).mteb_model_meta.revision

    own = revision()
    assert own == revision()
    revisions = {own, revision(shift=arrays["shift"] + 1), revision({**settings, "pivot": "deu-Latn"})}
    queries.prompts["query"] = "w8 "
    assert len(revisions | {revision()}) == 4
