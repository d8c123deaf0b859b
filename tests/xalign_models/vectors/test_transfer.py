"""Vectors leave the store and come back the same; those of another model stay out."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

import xalign_models
from xalign_models.backbones.loading import Checkpoint
from xalign_models.backbones.raw import key
from xalign_models.errors import DataError, FileError, ModelError
from xalign_models.models.building import load_encoder, raw_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.store import EmbeddingStore, open_store
from xalign_models.vector_files.reading import read_vectors
from xalign_models.vectors.transfer import export, import_file

TEXTS = [f"w{number} w{number + 2}" for number in range(40)]


@pytest.fixture
def raw(workdir, tiny_model):
    """The tiny model's raw encoder with the store, which has its vectors."""
    encoder = raw_encoder(find_spec(str(tiny_model)).backbone, "cpu", open_store())
    encoder.encode(TEXTS)
    return encoder


def test_all_that_is_kept_goes_to_another_store_and_is_not_encoded_there(workdir, tiny_model, raw):
    assert export(str(tiny_model), workdir / "all.parquet", open_store()) == len(TEXTS)
    assert pq.read_schema(workdir / "all.parquet").names == ["id", "vector"]
    with EmbeddingStore(workdir / "other") as other:
        found = import_file(workdir / "all.parquet", str(tiny_model), other)
        assert found == (len(TEXTS), 0)
        again = raw_encoder(find_spec(str(tiny_model)).backbone, "cpu", other)
        np.testing.assert_array_equal(again.encode(TEXTS), raw.encode(TEXTS))
        assert again.counts.encoded == 0


@pytest.mark.parametrize("option", [("--languages", "de"), ("--limit", "3"), ("--prompt", "a")])
def test_options_about_texts_are_refused_where_there_are_none(workdir, tiny_model, raw, xalign, option):
    status, _, err = xalign("store", "export", "--model", tiny_model, "-o", "all.parquet", *option)
    assert status == 2
    assert f"{option[0]}: no effect without --texts" in err[0]
    assert not (workdir / "all.parquet").exists()
    export(str(tiny_model), workdir / "all.parquet", open_store())
    with pytest.raises(ModelError, match="leave out --prompt"):
        import_file(workdir / "all.parquet", str(tiny_model), open_store(), prompt="a")


def test_an_export_is_a_backbone_by_its_hashes(workdir, tiny_model, raw):
    export(str(tiny_model), workdir / "all.parquet", open_store())
    stored = load_encoder(f"vectors:{workdir / 'all.parquet'}").raw
    np.testing.assert_array_equal(stored.encode(TEXTS), raw.encode(TEXTS))
    with pytest.raises(ModelError, match="lacks the vectors of 1 of 1 texts"):
        stored.encode(TEXTS[:1], "query: ")


def test_named_texts_are_written_with_their_languages_and_encoded_where_missing(workdir, tiny_model, raw):
    texts = {"deu-Latn": [*TEXTS[:3], "w99"], "eng-Latn": TEXTS[3:5]}
    assert export(str(tiny_model), workdir / "some.parquet", open_store(), texts) == 6
    assert pq.read_table(workdir / "some.parquet").column("lang").to_pylist() == ["deu-Latn"] * 4 + ["eng-Latn"] * 2
    found = read_vectors(workdir / "some.parquet")
    assert found.names == [*TEXTS[:3], "w99", *TEXTS[3:5]]
    np.testing.assert_array_equal(found.matrix, raw.encode(found.names))


@pytest.mark.parametrize("way", [{"truncate_dim": 8}, {"vectors": "binary"}, {"vectors": "int8"}])
def test_a_model_of_shorter_or_coarser_vectors_exports_what_its_maps_take(workdir, tiny_model, write_text, way):
    text = write_text(workdir / "fit", 40)
    model = xalign_models.fit("centered", backbone=str(tiny_model), corpus=f"own:{text}", overrides=way, device="cpu")
    xalign_models.save(model, "aligned")
    export("aligned", workdir / "some.parquet", open_store(), {"deu-Latn": TEXTS}, device="cpu")
    vectors = read_vectors(workdir / "some.parquet").matrix
    maps = load_maps("aligned", default_lang="deu-Latn", device="cpu")
    wanted = model.encode([{"text": text, "lang": "deu"} for text in TEXTS])
    assert np.abs(maps.transform(vectors) - wanted).max() < 1e-6
    with pytest.raises(ModelError, match="cannot be changed"):
        export("aligned", workdir / "some.parquet", open_store(), truncate_dim=4)


def test_shorter_vectors_are_exported_on_demand(workdir, tiny_model, raw):
    assert export(str(tiny_model), workdir / "all.parquet", open_store(), truncate_dim=5, vectors="binary") == len(
        TEXTS
    )
    found = read_vectors(workdir / "all.parquet")
    by_hash = dict(zip(found.names, found.matrix, strict=True))
    for text, vector in zip(TEXTS, raw.encode(TEXTS), strict=True):
        assert np.array_equal(by_hash[key("", text).hex()], np.where(vector[:5] > 0, 1, -1))


def test_vectors_of_another_model_prompt_or_dimension_are_refused(workdir, tiny_model, raw, write_vectors):
    store, model = open_store(), str(tiny_model)
    own, before = raw.encode(TEXTS), [stats.vectors for stats in store.stats()]
    others = {
        "another model, prompt or pooling": np.random.default_rng(0).standard_normal(own.shape),
        "dimension 5": own[:, :5],
    }
    for message, matrix in others.items():
        with pytest.raises(ModelError, match=message):
            import_file(write_vectors(workdir / "v.parquet", [f"{text} w1" for text in TEXTS], matrix), model, store)
    late = np.concatenate([own[:8], own[8:][::-1]])
    with pytest.raises(ModelError, match="another model, prompt or pooling"):
        import_file(write_vectors(workdir / "v.parquet", TEXTS, late), model, store)
    unit = own / np.linalg.norm(own, axis=1, keepdims=True)
    with pytest.raises(ModelError, match=r"with length 1; the store keeps them with .*, not normalised"):
        import_file(write_vectors(workdir / "v.parquet", TEXTS, unit), model, store)
    with pytest.raises(FileError, match="ids that are not from `xalign store export`"):
        import_file(write_vectors(workdir / "v.npz", TEXTS, own, by="id"), model, store)
    assert [stats.vectors for stats in store.stats()] == before
    found = import_file(write_vectors(workdir / "v.npz", TEXTS, own), model, store)
    assert found == (len(TEXTS), 8)
    assert import_file(write_vectors(workdir / "v.npz", ["new"], own[:1]), model, store, check=0) == (1, 0)
    np.testing.assert_array_equal(raw.encode(["new"]), own[:1])


def test_ids_with_another_dimension_than_the_catalogues_are_refused(workdir, tiny_model, write_vectors, monkeypatch):
    monkeypatch.setattr(Checkpoint, "facts", lambda self: {"embed_dim": 16})
    for by, names in (("id", [key("", text).hex() for text in TEXTS]), ("text", TEXTS)):
        file = write_vectors(workdir / "v.npz", names, np.ones((len(TEXTS), 5)), by=by)
        with pytest.raises(ModelError, match="of dimension 5, but .* has 16"):
            import_file(file, str(tiny_model), open_store(), check=0)
    assert not any(stats.vectors for stats in open_store().stats())


def test_there_is_nothing_to_write_without_vectors(workdir, tiny_model):
    with pytest.raises(DataError, match="--texts"):
        export(str(tiny_model), workdir / "all.parquet", open_store())
    assert not (workdir / "all.parquet").exists()
