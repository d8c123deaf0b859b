"""A map between two models finds the relation that was planted between them, whatever their dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from xalign_models import load
from xalign_models.errors import AlignmentError, LanguageError, ModelError
from xalign_models.models import migration
from xalign_models.models.building import load_encoder, raw_encoder
from xalign_models.models.names import find_spec, locate
from xalign_models.models.saving import save
from xalign_models.ranking.ranks import normalise


def rows(seed, count, dim):
    return normalise(np.random.default_rng(seed).standard_normal((count, dim)))


@pytest.mark.parametrize(("new", "old"), [(8, 8), (12, 8), (8, 12)])
def test_procrustes_is_semi_orthogonal_and_nearest(new, old):
    x = rows(0, 200, new)
    planted = np.linalg.qr(np.random.default_rng(1).standard_normal((max(new, old),) * 2)).Q[:new, :old]
    y = 0.7 * x @ planted + 0.3 * np.ones(old)
    weight, shift = migration.similarity(x, y)
    small = weight @ weight.T if new <= old else weight.T @ weight
    np.testing.assert_allclose(small, small[0, 0] * np.eye(min(new, old)), atol=1e-8)
    left = np.square(x @ weight + shift - y).sum()
    for seed in range(20):  # no nearby map of the same kind is nearer
        turn = np.linalg.qr(np.eye(old) + 0.02 * np.random.default_rng(seed).standard_normal((old, old))).Q
        turned = weight @ (turn * np.sign(np.diag(turn)))
        moved = x @ turned
        assert np.square(moved - moved.mean(axis=0) - y + y.mean(axis=0)).sum() >= left - 1e-9
    if new <= old:
        np.testing.assert_allclose(x @ weight + shift, y, atol=1e-6)


@pytest.mark.parametrize(("new", "old"), [(12, 8), (8, 12)])
def test_affine_finds_a_planted_map(new, old):
    x = rows(2, 400, new)
    planted = np.random.default_rng(3).standard_normal((new, old))
    y = x @ planted + 1.0
    found = normalise(migration.apply(migration.fit_map("affine", 5 * x, 3 * y), x))  # lengths do not matter
    assert np.linalg.norm(found - normalise(y), axis=1).mean() < 0.25
    ((exact, offset),) = migration.MAPS["affine"](x, y)
    np.testing.assert_allclose(exact, planted, atol=1e-4)
    np.testing.assert_allclose(offset, 1.0, atol=1e-4)


@pytest.mark.parametrize(("new", "old"), [(6, 4), (4, 6), (4, 4)])
def test_two_layers_are_the_network_after_the_similarity(new, old):
    """And nearer on a bend than the similarity alone."""
    x = rows(4, 600, new)
    straight, bent = np.random.default_rng(5).standard_normal((2, new, old))
    y = normalise(2 * x @ straight + np.abs(x @ bent))
    layers = migration.fit_map("residual", x, y)
    (weight, shift), (first, bias), (last, zero) = migration.similarity(x, y), *layers
    z, width = x @ weight + shift, first.shape[1] - 2 * old
    small = np.linalg.lstsq(weight, first[:, :width])[0] if new >= old else None
    assert not zero.any()
    if small is not None:
        network = np.maximum(z @ small + bias[:width] - shift @ small, 0) @ last[:width]
        np.testing.assert_allclose(migration.apply(layers, x), z + network, atol=1e-4)
    errors = [np.square(migration.apply(migration.fit_map(method, x, y), x) - y).sum() for method in migration.MAPS]
    assert errors[3] < 0.9 * errors[0]


def test_what_is_no_map_between_models_is_refused():
    with pytest.raises(AlignmentError, match="procrustes or affine or lowrank or residual"):
        migration.fit_map("lsar", rows(0, 5, 4), rows(1, 5, 4))
    with pytest.raises(AlignmentError, match="at least two texts"):
        migration.fit_map("affine", rows(0, 1, 4), rows(1, 1, 4))


@pytest.fixture
def two(request, workdir, tiny_model, write_text):
    """A new model of 16 dimensions, an old index of its vectors turned into fewer, and text."""
    text = write_text(workdir / "fit", 80, languages=("deu", "eng"))
    texts = [line for name in ("deu", "eng") for line in (text / f"{name}.txt").read_text().splitlines()]
    new = raw_encoder(find_spec(str(tiny_model)).backbone, "cpu").encode(texts)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((16, 16))).Q[:, : getattr(request, "param", 16)]
    listed = dict(zip(texts, normalise(new) @ turn, strict=True))
    np.savez(workdir / "index.npz", text=np.array([*listed]), vectors=np.stack([*listed.values()]))
    return str(tiny_model), f"vectors:{workdir / 'index.npz'}", text, listed


@pytest.mark.parametrize(
    ("method", "two"),
    [("procrustes", 16), ("affine", 16), ("affine", 6), ("lowrank", 6), ("residual", 16), ("residual", 6)],
    indirect=["two"],
)
def test_the_new_model_finds_its_texts_in_the_old_index(two, workdir, method):
    new, old, text, listed = two
    model = migration.fit(method, old=old, new=new, corpus=[f"own:{text}"], device="cpu")
    save(model, workdir / "migrated")
    texts = [*listed]
    expected = model.encode(texts)
    assert expected.shape[1] == len(listed[texts[0]])
    index = normalise(np.stack([*listed.values()]))
    assert (np.argmax(expected @ index.T, axis=1) == np.arange(len(texts))).mean() > 0.9
    for again in (load("migrated"), SentenceTransformer("migrated", trust_remote_code=True)):
        np.testing.assert_allclose(again.encode(texts), expected, atol=1e-6)
    encoder = load_encoder("migrated")
    np.testing.assert_allclose(encoder.encode_texts(texts, [None] * len(texts)), expected, atol=1e-5)
    assert locate("migrated").name == f"xalign/{method}-to-index__tiny"


def test_aligned_models_and_missing_texts_are_refused(two):
    new, old, text, _ = two
    with pytest.raises(ModelError, match="is aligned; migrate between backbones"):
        migration.fit("affine", old="lsar__all-MiniLM-L6-v2", new=new, corpus=[f"own:{text}"])
    for languages in (["fra-Latn"], ["deu-Latn", "fra-Latn"]):
        with pytest.raises(LanguageError, match="has no fra-Latn; it has deu-Latn, eng-Latn"):
            migration.fit("affine", old=old, new=new, corpus=[f"own:{text}"], languages=languages)


def test_the_texts_are_those_of_all_corpora_and_the_english_of_pairs(workdir, write_text):
    (workdir / "data" / "tatoeba_pairs").mkdir()
    (workdir / "data" / "tatoeba_pairs" / "eng-deu.tsv").write_text("e 1\td 1\ne 1\td 2\n")
    text = write_text(workdir / "text", 3, languages=("deu", "fra"))
    own = {f"{code}-Latn": [*dict.fromkeys((text / f"{code}.txt").read_text().splitlines())] for code in ("deu", "fra")}
    names = ["tatoeba_pairs", f"own:{text}"]
    assert migration.texts_of(names) == {
        "deu-Latn": ["d 1", "d 2", *own["deu-Latn"]], "eng-Latn": ["e 1"], "fra-Latn": own["fra-Latn"]
    }  # fmt: skip
    assert migration.texts_of(names, ["eng-Latn"]) == {"eng-Latn": ["e 1"]}
    assert migration.texts_of(names, {"deu-Latn"}, 1) == {"deu-Latn": ["d 1", own["deu-Latn"][0]]}
