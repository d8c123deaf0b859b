"""Networks learn planted maps, are the same in numpy and torch, and survive saving."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xalign_models.alignments import LangSAE, Residual, load, make
from xalign_models.alignments.groups import group
from xalign_models.alignments.module import Aligned
from xalign_models.alignments.networks import RectifiedAligned, autoencoder
from xalign_models.errors import AlignmentError

SMALL = {
    "langsae": {"units": 32, "steps": 300, "sparsity": 0.03, "active": 0.9},
    "residual": {"hidden": 16, "steps": 30},
}


@pytest.fixture(params=SMALL)
def fitted(request):
    return make(request.param, **SMALL[request.param]).fit(tongues())


def tongues(rows=400, dim=12):
    """Rows with the same content, whose language adds its own direction to all of its rows."""
    rng = np.random.default_rng(0)
    marks = 3 * np.linalg.qr(rng.standard_normal((dim, dim))).Q
    content = rng.standard_normal((rows, dim)) * np.linspace(0.2, 1, dim)
    return {code: content + marks[i] for i, code in enumerate(("eng-Latn", "deu-Latn", "tur-Latn"))}


def gap(fitted, data):
    """Largest distance between two languages' means, before and after."""
    after = {code: fitted.transform(x, code) for code, x in data.items()}
    return [max(np.linalg.norm(a.mean(axis=0) - b.mean(axis=0)) for a in side.values() for b in side.values())
            for side in (data, after)]  # fmt: skip


def test_the_autoencoders_language_units_are_removed():
    data = tongues()
    fitted = LangSAE(**SMALL["langsae"]).fit(data)
    before, after = gap(fitted, data)
    assert after < 0.5 * before
    assert 1 <= fitted.inner_.shape[2] <= 12
    for x in data.values():  # the content stays
        left = fitted.transform(x)
        assert np.corrcoef((left - left.mean(axis=0)).ravel(), (x - x.mean(axis=0)).ravel())[0, 1] > 0.85


def test_the_autoencoder_reconstructs_sparsely():
    x = np.concatenate([*tongues().values()])
    encoder, bias, decoder = autoencoder(x, np.full(len(x), 1 / len(x)), units=64, sparsity=0.01, steps=600, seed=0)
    code = np.maximum(x @ encoder + bias, 0)
    centred = x - x.mean(axis=0)
    assert np.square(code @ decoder - centred).sum() < 0.2 * np.square(centred).sum()
    np.testing.assert_allclose(np.linalg.norm(decoder, axis=1), 1, atol=1e-5)
    assert (code > 0).mean() < 0.5


def test_one_language_has_no_units_of_its_own():
    x = tongues()["eng-Latn"]
    with pytest.warns(UserWarning, match="no unit belongs to a language"):
        fitted = LangSAE(**SMALL["langsae"]).fit({"eng-Latn": x})
    np.testing.assert_array_equal(fitted.transform(x), x)


def test_units_of_a_prompt_are_of_no_language():
    """One language under two prompts stays as it is, and the offset of two prompts stays while languages meet."""
    prompts = {"query: ": 4 * np.eye(12)[5], "passage: ": -4 * np.eye(12)[5]}
    data = {group(code, p): x + offset for code, x in tongues().items() for p, offset in prompts.items()}
    one = {key: x for key, x in data.items() if key.startswith("eng-Latn")}
    with pytest.warns(UserWarning, match="no unit belongs to a language"):
        assert LangSAE(**SMALL["langsae"]).fit(one).inner_.shape[2] == 0
    fitted = LangSAE(**SMALL["langsae"]).fit(data)
    queries, passages = ({key: x for key, x in data.items() if key.endswith(p)} for p in prompts)
    for side in (queries, passages):
        before, after = gap(fitted, side)
        assert after < 0.5 * before
    means = [np.mean([fitted.transform(x).mean(axis=0) for x in side.values()], axis=0) for side in (queries, passages)]
    assert np.linalg.norm(means[0] - means[1]) > 3  # of 8; less than 1 if prompts count as languages


def test_a_bend_is_learned_that_no_affine_map_has():
    rng = np.random.default_rng(0)
    german = rng.standard_normal((1000, 4))
    data = {"deu-Latn": german, "eng-Latn": german + np.abs(german[:, ::-1]) + 2}
    held = rng.standard_normal((200, 4))
    wanted = held + np.abs(held[:, ::-1]) + 2
    errors = [np.square(make(method, **params).fit(data).transform(held, "de") - wanted).mean()
              for method, params in (("affine", {}), ("residual", {"hidden": 32, "steps": 1000}))]  # fmt: skip
    assert errors[1] < 0.2 * errors[0]


def test_no_step_is_taken_where_the_difference_of_means_is_exact(parallel):
    shifted = {"deu-Latn": parallel["eng-Latn"] + 1, "eng-Latn": parallel["eng-Latn"]}
    fitted = Residual(steps=1).fit(shifted)
    moved = fitted.transform(parallel["deu-Latn"], "de") - parallel["deu-Latn"]
    assert np.ptp(moved, axis=0).max() < 1e-12  # one shift for all rows
    np.testing.assert_array_equal(fitted.transform(parallel["eng-Latn"], "en"), parallel["eng-Latn"])


def test_the_state_after_the_last_step_counts(parallel):
    """With fewer than ten rows, the error is that of all rows, which each of the first steps lowers."""
    german, english = (parallel[code][:9] for code in ("deu-Latn", "eng-Latn"))
    errors = [np.square(german + (english - german).mean(axis=0) - english).sum()]
    for steps in (1, 2, 3):
        fitted = Residual(steps=steps).fit({"deu-Latn": german, "eng-Latn": english})
        errors.append(np.square(fitted.transform(german, "de") - english).sum())
    assert np.diff(errors).max() < -1e-3


def test_the_same_seed_gives_the_same_map(fitted):
    again = type(fitted)(**fitted.get_params()).fit(tongues())
    assert again.fingerprint() == fitted.fingerprint()
    other = type(fitted)(**fitted.get_params() | {"seed": 1}).fit(tongues())
    assert other.fingerprint() != fitted.fingerprint()


def test_numpy_torch_and_saved_files_agree(fitted, tmp_path):
    x = np.random.default_rng(1).standard_normal((6, 12))
    codes = ["deu-Latn", "eng-Latn"] * 3
    expected = fitted.transform(x, codes)
    fitted.save(tmp_path / "a")
    np.testing.assert_array_equal(load(tmp_path / "a").transform(x, codes), expected)
    module = fitted.module()
    assert type(module) is RectifiedAligned
    module.save(str(tmp_path))
    for again in (module, RectifiedAligned.load(str(tmp_path))):
        out = again({"sentence_embedding": torch.from_numpy(x).float(), "lang": codes})["sentence_embedding"]
        np.testing.assert_allclose(out.numpy(), expected, atol=1e-5)


def test_no_dense_layer_stands_for_a_network(fitted):
    with pytest.raises(AlignmentError, match="is not affine"):
        fitted.module().folded("de")
    assert Aligned.of(make("centered").fit(tongues())).folded("de")[0].shape == (12, 12)


@pytest.mark.parametrize(("method", "field", "value"), [
    ("langsae", "units", 0), ("langsae", "sparsity", -1.0), ("langsae", "active", 0.0), ("langsae", "seed", -1),
    ("residual", "hidden", 0), ("residual", "steps", 0), ("residual", "validation", 1.0),
])  # fmt: skip
def test_fields_are_checked(method, field, value):
    with pytest.raises(AlignmentError, match=field):
        make(method, **{field: value})
