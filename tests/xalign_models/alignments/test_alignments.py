"""What all alignments share; Centered and LIR against their definitions."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.registries import restored
from xalign_models import plugins
from xalign_models.alignments import LIR, LSAR, METHODS, Centered, load, make, registry
from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.errors import AlignmentError, LanguageError
from xalign_models.linalg.solvers import affine_distance, lir_directions, procrustes

ALL = [
    ("centered", {}),
    ("lir", {"k": 3}),
    ("lsar", {"rank": 1}),
    ("procrustes", {"center": True}),
    ("affine", {"ridge": 0.01}),
    ("affine", {"loss": "distance"}),
]


@pytest.fixture(params=ALL, ids=lambda one: "-".join(map(str, (one[0], *one[1].values()))))
def fitted(request, parallel):
    method, params = request.param
    return make(method, **params).fit(parallel)


def test_centered_subtracts_the_mean(parallel):
    x = np.random.default_rng(1).standard_normal((5, 16))
    for language, rows in parallel.items():
        expected = x - np.array([sum(column) / len(column) for column in rows.T])
        np.testing.assert_allclose(Centered().fit(parallel).transform(x, language), expected, atol=1e-12)


def test_swapping_two_labels_changes_centered(parallel):
    swapped = {**parallel, "deu-Latn": parallel["tur-Latn"], "tur-Latn": parallel["deu-Latn"]}
    x = parallel["deu-Latn"]
    ours, theirs = Centered().fit(parallel), Centered().fit(swapped)
    assert np.abs(ours.transform(x, "deu-Latn") - theirs.transform(x, "deu-Latn")).max() > 0.1
    np.testing.assert_array_equal(ours.transform(x, "deu-Latn"), theirs.transform(x, "tur-Latn"))
    np.testing.assert_array_equal(ours.transform(x, "eng-Latn"), theirs.transform(x, "eng-Latn"))


@pytest.mark.parametrize("shape", [(60, 8), (8, 60), (8, 8)])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_lir_equals_the_full_svd(shape, k):
    x = np.random.default_rng(0).standard_normal(shape) + 0.5
    top = np.linalg.svd(x)[2][:k].T
    ours = lir_directions(x, k)
    np.testing.assert_allclose(ours @ ours.T, top @ top.T, atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(ours * top, axis=0)), 1, atol=1e-10)  # the same order, whatever the sign
    np.testing.assert_allclose(LIR(k).fit({"a": x}).transform(x, "a"), x - x @ top @ top.T, atol=1e-10)


@pytest.mark.parametrize("shape", [(30, 6), (6, 30)])
def test_lir_of_rank_deficient_rows_removes_only_what_is_there(shape):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1]))
    ours = lir_directions(x, 4)
    np.testing.assert_allclose(ours.T @ ours, np.diag([1, 1, 0, 0]), atol=1e-10)


def test_lir_asks_for_enough_rows():
    with pytest.raises(AlignmentError, match=r"deu-Latn: k=3 .* \(2, 9\)"):
        LIR(3).fit({"deu-Latn": np.ones((2, 9))})
    with pytest.raises(AlignmentError, match="k=-1"):
        make("lir", k=-1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_is_kept_input_is_not_changed_and_rows_may_mix_languages(fitted, dtype):
    x = np.random.default_rng(1).standard_normal((6, 16)).astype(dtype)
    before = x.copy()
    languages = ["tur-Latn", "eng-Latn", "deu-Latn", "deu-Latn", "eng-Latn", "tur-Latn"]
    mixed = fitted.transform(x, languages)
    np.testing.assert_array_equal(x, before)
    assert mixed.dtype == dtype
    assert not np.shares_memory(mixed, x)
    for row, language in enumerate(languages):
        alone = fitted.transform(x[row : row + 1], language)[0]
        np.testing.assert_allclose(mixed[row], alone, rtol=np.finfo(dtype).eps * 4, atol=1e-12)
    assert fitted.transform(x[:0], []).shape == (0, 16)
    assert fitted.transform([[1] * 16], "deu-Latn").dtype == np.float64


def test_fit_data_are_not_changed_and_the_global_generator_is_not_touched(fitted, parallel):
    copies, state = {one: rows.copy() for one, rows in parallel.items()}, np.random.get_state()[1].copy()  # noqa: NPY002
    type(fitted)(**fitted.get_params()).fit(parallel)
    for one, rows in parallel.items():
        np.testing.assert_array_equal(rows, copies[one])
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_factors_are_the_transform(fitted):
    """Against dense matrices A = W - C C^T, worked row by row."""
    x, factors = np.random.default_rng(1).standard_normal((3, 16)), fitted.factors()
    for index, language in enumerate(fitted.languages_):
        at = index if fitted.language_dependent else 0
        matrix = factors["weight"][at] if "weight" in factors else np.eye(16)
        if "basis" in factors:
            matrix = matrix - np.einsum("ik,jk->ij", factors["basis"][at], factors["basis"][at])
        shift = factors["shift"][at] if "shift" in factors else 0
        np.testing.assert_allclose(fitted.transform(x, language), np.einsum("ni,ij->nj", x, matrix) + shift, atol=1e-12)


def test_save_and_load_are_exact(fitted, tmp_path):
    fitted.save(tmp_path / "a")
    back = load(tmp_path / "a")
    assert type(back) is type(fitted)
    assert (back.get_params(), back.languages_, back.dim_) == (fitted.get_params(), fitted.languages_, fitted.dim_)
    assert back.fingerprint() == fitted.fingerprint()
    x = np.random.default_rng(1).standard_normal((3, 16))
    np.testing.assert_array_equal(back.transform(x, "deu-Latn"), fitted.transform(x, "deu-Latn"))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["alignment.json", "alignment.safetensors"]


@pytest.mark.parametrize("seconds", ["soon", [1], True, 1e999])
def test_seconds_that_are_no_number_are_unknown(fitted, tmp_path, seconds):
    fitted.seconds_ = seconds
    fitted.save(tmp_path / "a")
    assert load(tmp_path / "a").seconds_ is None


def test_fingerprint_tells_parameters_data_and_labels_apart(parallel):
    renamed = {("deu" if one == "deu-Latn" else one): rows for one, rows in parallel.items()}
    moved = {**parallel, "deu-Latn": np.nextafter(parallel["deu-Latn"], np.inf)}
    models = [
        LIR(1).fit(parallel),
        LIR(2).fit(parallel),
        LIR(1).fit(renamed),
        LIR(1).fit(moved),
        Centered().fit(parallel),
    ]
    prints = [model.fingerprint() for model in models]
    assert len(set(prints)) == len(prints)
    assert LIR(1).fit(parallel).fingerprint() == prints[0]
    assert len(prints[0]) == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "magic"}, "method 'magic' of a plug-in that is not loaded"),
        ({"format": 99}, "format 99"),
        ({"params": {"q": 1}}, "damaged"),
    ],
)
def test_strange_files_are_refused(parallel, tmp_path, change, message):
    LIR().fit(parallel).save(tmp_path)
    path = tmp_path / "alignment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(AlignmentError, match=message):
        load(tmp_path)


def test_damage_and_absence_are_refused(parallel, tmp_path):
    with pytest.raises(AlignmentError, match="missing or unreadable"):
        load(tmp_path)
    LIR().fit(parallel).save(tmp_path)
    with pytest.raises(AlignmentError, match=r"holds a 'lir' alignment, not 'centered'"):
        Centered.load(tmp_path)
    Centered().fit(parallel).save(tmp_path / "other")
    weights = tmp_path / "alignment.safetensors"
    for content in ((tmp_path / "other" / weights.name).read_bytes(), weights.read_bytes()[:-1], b""):
        weights.write_bytes(content)
        with pytest.raises(AlignmentError, match="damaged"):
            load(tmp_path)


def test_languages_that_were_not_fitted_are_named_with_those_that_were(parallel):
    model, x = Centered().fit(parallel), np.ones((2, 16))
    with pytest.raises(LanguageError, match="not fitted for xxx-Latn; fitted languages: eng-Latn, deu-Latn, tur-Latn"):
        model.transform(x, ["deu-Latn", "xxx-Latn"])
    with pytest.raises(LanguageError, match="needs the language of every text"):
        model.transform(x)
    with pytest.raises(LanguageError, match="needs the language of every text"):
        model.transform(x, ["deu-Latn", None])
    with pytest.raises(AlignmentError, match="one language per row .2., not 3"):
        model.transform(x, ["deu-Latn"] * 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "no language"),
        ({"a": np.ones((0, 3))}, r"a has shape \(0, 3\)"),
        ({"a": np.ones(3)}, r"a has shape \(3,\)"),
        ({"a": np.ones((2, 3)), "b": np.ones((2, 4))}, "dimensions differ: .*b 4"),
        ({"a": np.array([[1.0], [np.inf]])}, "a, row 1 is not finite"),
        ({"a": [[1.0, 2.0], [3.0]]}, "a is not a matrix of real numbers"),
        ({"a": [["x"]]}, "a is not a matrix of real numbers"),
        ({"a": np.ones((4, 3)) * 1j}, "a is not a matrix of real numbers"),
        (np.ones((4, 3)), "pass a mapping from language"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_bad_fit_data_are_refused(method, data, message):
    params = {"pivot": "a"} if METHODS[method].parallel else {}
    with pytest.raises(AlignmentError, match=message):
        make(method, **params).fit(data)


def test_bad_transform_input_is_refused(fitted):
    with pytest.raises(AlignmentError, match=r"dimension 3, but .* fitted on 16"):
        fitted.transform(np.ones((2, 3)), "deu-Latn")
    with pytest.raises(AlignmentError, match="row 0 is not finite"):
        fitted.transform(np.full((1, 16), np.nan), "deu-Latn")
    with pytest.raises(AlignmentError, match="not fitted"):
        type(fitted)().transform(np.ones((2, 16)), "deu-Latn")
    if fitted.language_dependent:
        with pytest.raises(LanguageError, match="3 is not a language"):
            fitted.transform(np.ones((2, 16)), 3)


HALF = {"residual": {"hidden": 8, "steps": 5}, "langsae": {"units": 16, "steps": 5}}


@pytest.mark.parametrize("scale", [1, 1000])  # squares of which half precision cannot hold
@pytest.mark.parametrize("method", [*sorted({*METHODS} - {"minivec2vec"}), "centered+procrustes", "centered+affine"])
@pytest.mark.filterwarnings("ignore")
def test_rows_in_half_precision_are_fitted_as_in_double(method, scale, parallel):
    half = {language: (scale * rows).astype(np.float16) for language, rows in parallel.items()}
    fits = [make(method, **HALF.get(method, {})).fit({language: rows.astype(dtype) for language, rows in half.items()})
            for dtype in (np.float16, np.float64)]  # fmt: skip
    rows = half["deu-Latn"].astype(np.float64)
    found, expected = (fit.transform(rows, "deu-Latn") for fit in fits)
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_tensors_of_any_type_are_fitted(dtype):
    rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    means = make("centered").fit({"a": rows, "b": rows + 1}).means_
    np.testing.assert_allclose(means[0], rows.detach().double().mean(dim=0), atol=1e-3)


def test_make_names_what_exists():
    with pytest.raises(AlignmentError, match="Choose from affine, centered, "):
        make("magic")
    with pytest.raises(AlignmentError, match="lir has no rank; it has k"):
        make("lir", rank=3)
    assert make("procrustes", center=True).get_params() == {
        "pivot": "eng-Latn",
        "normalize": True,
        "center": True,
        "shrink": 0.0,
    }


def test_a_parameter_without_a_default_is_asked_for():
    @dataclass(eq=False)
    class Turned(Centered):
        method = "turned"
        angle: float

    with restored(plugins.ALIGNMENTS):
        plugins.register.alignment(Turned)
        with pytest.raises(AlignmentError, match=r"turned: .*missing .*'angle'"):
            make("turned")
        assert make("turned", angle=0.5).get_params() == {"angle": 0.5}


def test_a_version_names_the_code_of_plug_ins_alone(monkeypatch):
    assert registry.version_of("centered") == registry.find_method("centered").version
    monkeypatch.setattr(registry, "code_digest", lambda cls: "" if cls.method == "lsar" else f"<{cls.method}>")
    assert registry.version_of("lsar") == registry.find_method("lsar").version
    whole = registry.version_of("centered+lsar+procrustes")
    assert whole == f"{registry.find_method('centered+lsar+procrustes').version} <centered> <procrustes>"


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        ("lir", "k", [2, np.int64(2), "2", 2.0]),
        ("lsar", "rank", [1, np.int32(1), True]),
        ("shift", "strength", [0.5, np.float32(0.5), "0.5"]),
        ("shift", "index_only", [True, np.bool_(True), "true"]),
        ("centered+lir", "k", [2, np.int64(2)]),
    ],
)
def test_values_that_convert_are_those_of_the_parameters_type(method, name, values, parallel, tmp_path):
    kind = registry.find_method(method)
    fits = [kind(**{name: value}).fit(parallel) for value in values]
    fits.append(kind().set_params(**{name: values[-1]}).fit(parallel))
    assert {type(getattr(fit, name)) for fit in fits} == {type(values[0])}
    assert len({fit.fingerprint() for fit in fits}) == 1
    fits[1].save(tmp_path)
    assert load(tmp_path).get_params() == fits[0].get_params()


def test_an_integer_for_a_float_stays_as_fingerprints_hold_it():
    assert type(make("shift", strength=1).get_params()["strength"]) is int


def test_every_unknown_parameter_is_named():
    with pytest.raises(AlignmentError, match="centered has no a, b; it has no parameters"):
        make("centered", b=1, a=2)


def test_the_fingerprint_is_of_parameters_in_any_order(parallel):
    fitted = make("lsar").fit(parallel)
    assert fitted._fingerprint({"a": 1, "b": 2}) == fitted._fingerprint({"b": 2, "a": 1})
    assert fitted._fingerprint({"a": 1, "b": 2}) != fitted._fingerprint({"a": 2, "b": 1})


def test_the_fingerprint_stays_that_of_earlier_releases():
    """Revisions of committed results are made of it."""
    rows = np.arange(32, dtype=np.float64).reshape(8, 4)
    fitted = make("centered").fit({"deu-Latn": rows, "eng-Latn": rows + 1})
    assert fitted.fingerprint() == "026ae2ae333de8df3223d826e0ef859d4188ee8bb710383d971ba5bfeccfaf39"


def test_few_rows_in_single_precision_are_rotated_as_in_double():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 5, 12))
    expected = procrustes(x, y)
    np.testing.assert_allclose(procrustes(x.astype(np.float32), y.astype(np.float32)), expected, atol=1e-4)


def test_two_pairs_are_enough_to_hold_one_out():
    x, y = np.random.default_rng(0).standard_normal((2, 2, 4))
    weight, shift = affine_distance(x, y, steps=2)
    assert weight.shape == (4, 4) and shift.shape == (4,)
    with pytest.raises(AlignmentError, match="at least 2 pairs"):
        affine_distance(x[:1], y[:1])


class Mine(UnpairedAlignment):
    """The identity, as an author of a plug-in writes it."""

    method = "mine"
    arrays = ("weights_", "shifts_")

    def _fit(self, matrices):
        dim = next(iter(matrices.values())).shape[1]
        self.weights_ = np.stack([np.eye(dim)] * len(matrices))
        self.shifts_ = np.zeros((len(matrices), dim))
        self.spoil(matrices)

    def spoil(self, matrices):
        """Make a mistake."""


def spoilt(**members):
    return dataclass(eq=False)(type("Mine", (Mine,), members))()


def failing(self, matrices):
    raise ValueError("two\nlines")


def centred_in_place(self, matrices):
    for x in matrices.values():
        x -= x.mean(axis=0)


def test_a_method_may_extend_the_fit_of_another_and_keep_a_mask(parallel):
    class Extended(LSAR):
        method = "extended"
        arrays = (*LSAR.arrays, "kept_")

        def fit(self, data, y=None):
            super().fit(data)
            self.kept_ = np.ones(3, bool)
            return self

    rows = parallel["deu-Latn"]
    extended, plain = dataclass(eq=False)(Extended)().fit(parallel), LSAR().fit(parallel)
    np.testing.assert_array_equal(extended.transform(rows, "deu-Latn"), plain.transform(rows, "deu-Latn"))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (
            {"spoil": lambda self, _: setattr(self, "weights_", self.weights_[:, :, :2])},
            r"weight has shape \(3, 16, 2\)",
        ),
        ({"spoil": lambda self, _: setattr(self, "weights_", self.weights_[:1])}, r"it must be \(3, 16, 16\)"),
        ({"spoil": lambda self, _: setattr(self, "shifts_", self.shifts_[0])}, r"shift has shape \(16,\)"),
        ({"spoil": lambda self, _: setattr(self, "weights_", self.weights_ * np.nan)}, "of finite real numbers"),
        ({"spoil": lambda self, _: setattr(self, "weights_", self.weights_ * 1j)}, "of finite real numbers"),
        ({"spoil": lambda self, _: setattr(self, "shifts_", np.array([{}]))}, "shifts_ must be an array of finite"),
        ({"factors": lambda self: None}, "factors must return a dictionary of weight, basis and shift"),
        ({"factors": lambda self: {"weights": self.weights_}}, "factors must return a dictionary"),
        ({"factors": lambda self: {"basis": self.weights_[0]}}, r"it must be \(3, 16, k\)"),
        ({"factors": lambda self: {"shift": self.shifts_.tolist()}}, "shift must be an array of finite"),
        ({"spoil": failing}, "cannot be fitted: two lines"),
        ({"spoil": centred_in_place}, "read-only"),
        ({"fit": lambda self, data, y=None: self}, "fit must set languages_"),
    ],
)
def test_a_method_whose_fit_makes_no_map_is_named_with_the_mistake(parallel, members, why):
    before = {language: rows.copy() for language, rows in parallel.items()}
    with pytest.raises(AlignmentError, match=f"mine.*{why}") as caught:
        spoilt(**members).fit(parallel)
    assert "\n" not in str(caught.value)
    for language, rows in parallel.items():
        np.testing.assert_array_equal(rows, before[language])
        assert rows.flags.writeable
    assert spoilt().fit(parallel).transform(parallel["deu-Latn"], "deu-Latn").shape == parallel["deu-Latn"].shape
