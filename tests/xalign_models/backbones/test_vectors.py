"""Stored vectors as a backbone: looked up, fitted on, saved, and an error where a text is not there."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from xalign_models import alignments, load
from xalign_models.backbones import loading
from xalign_models.errors import FileError, LanguageError, ModelError
from xalign_models.models import api
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.vector_files.reading import read_vectors


@pytest.fixture
def planted_file(workdir, planted, tmp_path):
    """The vectors of a planted encoder for a corpus of its, and the corpus."""
    rng = np.random.default_rng(0)
    encoder = planted(turn={"deu": np.linalg.qr(rng.standard_normal((16, 16))).Q}, shift={"fra": np.ones(16)})
    corpus = planted.write(workdir / "text", range(60))
    texts = [f"{language} {meaning}" for language in ("deu", "eng", "fra") for meaning in range(60)]
    np.savez(workdir / "planted.npz", text=np.array(texts), vectors=encoder.encode(texts))
    return workdir / "planted.npz", corpus, texts


def test_a_fit_on_stored_vectors_is_the_fit_on_their_matrix(planted_file):
    file, corpus, _ = planted_file
    stored = read_vectors(file)
    model = api.fit("procrustes", backbone=f"vectors:{file}", corpus=f"own:{corpus}", limit=None)
    rows = {code: [stored.row[f"{code[:3]} {n}"] for n in range(60)] for code in ("deu-Latn", "eng-Latn")}
    sides = {code: stored.matrix[chosen] for code, chosen in rows.items()}
    wanted = alignments.make("procrustes").fit(sides).transform(sides["deu-Latn"], "deu-Latn")
    found = model.encode([{"text": f"deu {n}", "lang": "de"} for n in range(60)])
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-5)


def test_a_saved_model_points_to_its_file(planted_file, workdir):
    file, corpus, texts = planted_file
    model = api.fit("centered", backbone=f"vectors:{file}", corpus=f"own:{corpus}", limit=None)
    inputs = [{"text": text, "lang": text[:3]} for text in texts[::7]]
    save(model, workdir / "saved")
    expected = model.encode(inputs)
    for again in (load("saved"), SentenceTransformer("saved", trust_remote_code=True)):
        np.testing.assert_allclose(again.encode(inputs), expected, atol=1e-6)
    encoder = load_encoder("saved")
    found = encoder.encode_texts([one["text"] for one in inputs], [one["lang"] for one in inputs])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.savez(file, text=np.array(["a"]), vectors=np.ones((1, 16)))
    with pytest.raises(ModelError, match=r"was fitted on vectors:.*planted\.npz, which has changed since"):
        load("saved")
    file.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        load("saved")


def test_languages_are_found_by_default_if_the_model_says_so(planted_file, workdir):
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    file, corpus, texts = planted_file
    options = {"backbone": f"vectors:{file}", "corpus": f"own:{corpus}", "limit": None, "default_lang": "auto"}
    model = api.fit("centered", **options)
    expected, mixed = model.encode(texts[:4], lang="auto"), [None, "fr", None, None]
    save(model, workdir / "saved")
    for one in (model, load("saved")):
        np.testing.assert_array_equal(one.encode(texts[:4]), expected)
        np.testing.assert_array_equal(one.encode(texts[:4], lang=mixed)[[0, 2, 3]], expected[[0, 2, 3]])
        np.testing.assert_array_equal(one.encode(texts[1], lang="fr"), one.encode(texts[:4], lang=mixed)[1])


def test_texts_that_are_not_there_are_counted_and_the_first_is_named(planted_file):
    file, _, texts = planted_file
    encoder = load_encoder(f"vectors:{file}")
    with pytest.raises(ModelError, match=r"lacks the vectors of 2 of 4 texts, the first of which is 'jpn 1'; add them"):
        encoder.encode_texts([texts[0], "jpn 1", "jpn 2", texts[1]], [None] * 4)
    with pytest.raises(ModelError, match="no texts"):
        encoder.raw.encode([])
    assert encoder.raw.encode([texts[0]] * 3, ["", "", "x"]).shape == (3, 16)


def test_the_revision_is_the_files_content(planted_file, workdir):
    file, *_ = planted_file
    (workdir / "copy.npz").write_bytes(file.read_bytes())
    first, second = (find_spec(f"vectors:{path}").backbone for path in (file, workdir / "copy.npz"))
    assert loading.open_backbone(first).fingerprint == loading.open_backbone(second).fingerprint
    np.savez(workdir / "copy.npz", text=np.array(["a"]), vectors=np.ones((1, 16)))
    assert loading.open_backbone(first).fingerprint != loading.open_backbone(second).fingerprint


def test_what_vectors_cannot_do_is_refused(planted_file, workdir):
    file, *_ = planted_file
    with pytest.raises(ModelError, match="--layer does not apply to vectors:"):
        load_encoder(f"vectors:{file}", layer=2).raw.encode(["deu 1"])
    with pytest.raises(ModelError, match="cannot be read"):
        load_encoder("vectors:nothing.parquet")
    (workdir / "v.csv").write_text("x")
    with pytest.raises(FileError, match="not a file of vectors"):
        load_encoder(f"vectors:{workdir / 'v.csv'}").raw.encode(["a"])
    with pytest.raises(LanguageError, match="needs the language"):
        api.fit("centered", backbone=f"vectors:{file}", corpus=f"own:{planted_file[1]}").encode(["deu 1"])


def test_nothing_behind_the_colon_is_no_folder(workdir):
    with pytest.raises(ModelError, match="^vectors: names no file; write vectors:FILE, a parquet"):
        load("vectors:")


def test_two_files_of_one_name_are_not_scored_in_one_run(planted_file, workdir, xalign):
    """They would be one row of the board."""
    file, corpus, _ = planted_file
    (workdir / "other").mkdir()
    (workdir / "other" / "planted.npz").write_bytes(file.read_bytes())
    arguments = ("--tasks", "OwnParallel", "--data", f"own={corpus}")
    status, _, (line,) = xalign("run", "-m", f"vectors:{file},vectors:other/planted.npz", *arguments)
    assert status == 2
    assert f"vectors:{file} and vectors:other/planted.npz have the same name" in line
    assert xalign("run", "-m", f"vectors:{file},vectors:planted.npz", *arguments)[0] == 0
