"""Compositions are their stages in turn, as one saved map."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from xalign_models.alignments import LSAR, Centered, Procrustes, find_method, load, make, version_of
from xalign_models.alignments.composed import composed
from xalign_models.alignments.module import Aligned
from xalign_models.errors import AlignmentError


@pytest.fixture(autouse=True)
def made_anew():
    """The classes are made once and kept; what makes them is tested each time."""
    composed.cache_clear()


ORDERS = """centered+procrustes procrustes+centered lsar+procrustes procrustes+lsar whitened+procrustes lir+affine
centered+lsar lsar+lir centered+seedless whitened+procrustes+lsar""".split()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("before", ["centered", "whitened", "affine", "centered+procrustes"])
def test_equal_means_have_no_subspace(before, dtype, parallel):
    rows = {language: (5 + rows).astype(dtype) for language, rows in parallel.items()}
    with pytest.warns(UserWarning, match="rank 2 cut to 0"):
        weights = make(f"{before}+lsar").fit(rows).weights_
    np.testing.assert_allclose(weights, make(f"{before}+lsar", rank=0).fit(rows).weights_)


@pytest.mark.filterwarnings("ignore:lsar. rank 2 cut to 0")
@pytest.mark.parametrize("name", ORDERS)
def test_any_order_is_its_stages_in_turn_and_one_saved_map(name, parallel, tmp_path):
    fitted = make(name).fit(parallel)
    current = dict(parallel)
    for part in name.split("+"):
        stage = make(part).fit(current)
        current = {language: stage.transform(rows, language) for language, rows in current.items()}
    for language, rows in parallel.items():
        np.testing.assert_allclose(fitted.transform(rows, language), current[language], atol=1e-9)
    fitted.save(tmp_path)
    again = load(tmp_path)
    assert again.fingerprint() == fitted.fingerprint()
    assert again.method == name
    assert Aligned.of(again).shapes["weight"][1:] == [16, 16]
    for same in (again, pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(
            same.transform(parallel["deu-Latn"], "deu-Latn"), fitted.transform(parallel["deu-Latn"], "deu-Latn")
        )


def test_pairs_of_their_own_equal_shared_rows(parallel):
    pivot = parallel["eng-Latn"]
    pairs = {language: (rows, pivot) for language, rows in parallel.items() if language != "eng-Latn"}
    shared, paired = (make("centered+procrustes").fit(data) for data in (parallel, pairs))
    for language, rows in parallel.items():
        np.testing.assert_allclose(shared.transform(rows, language), paired.transform(rows, language), atol=1e-9)


def test_parameters_reach_the_stages_that_have_them(parallel):
    fitted = make("lsar+procrustes", rank=1, normalize=False).fit(parallel)
    lsar = LSAR(rank=1).fit(parallel)
    reduced = {language: lsar.transform(rows, language) for language, rows in parallel.items()}
    expected = Procrustes(normalize=False).fit(reduced).transform(reduced["tur-Latn"], "tur-Latn")
    np.testing.assert_allclose(fitted.transform(parallel["tur-Latn"], "tur-Latn"), expected, atol=1e-9)
    with pytest.raises(AlignmentError, match=r"lsar\+procrustes has no k"):
        make("lsar+procrustes", k=3)
    with pytest.raises(AlignmentError, match="rank='x'; it must be a valid integer"):
        make("lsar+procrustes", rank="x")


@pytest.mark.filterwarnings("ignore:lsar. rank")
@pytest.mark.parametrize("name", ["lsar+lowrank", "lowrank+lsar", "leace+procrustes", "procrustes+leace"])
def test_stages_whose_defaults_differ_have_their_own(name, parallel):
    first, second = map(make, name.split("+"))
    reduced = {language: first.fit(parallel).transform(rows, language) for language, rows in parallel.items()}
    fitted, expected = make(name).fit(parallel), second.fit(reduced)
    for language, rows in reduced.items():
        mapped = fitted.transform(parallel[language], language)
        np.testing.assert_allclose(mapped, expected.transform(rows, language), atol=1e-8)
    assert version_of(name) > 1  # fits of earlier releases had one default for both


def test_a_shared_parameter_that_is_given_reaches_both_stages(parallel):
    lsar = LSAR(rank=1).fit(parallel)
    reduced = {language: lsar.transform(rows, language) for language, rows in parallel.items()}
    expected = make("lowrank", rank=1).fit(reduced)
    fitted = make("lsar+lowrank", rank=1).fit(parallel)
    for language, rows in reduced.items():
        mapped = fitted.transform(parallel[language], language)
        np.testing.assert_allclose(mapped, expected.transform(rows, language), atol=1e-8)


def test_what_the_stages_are_the_composition_is():
    assert find_method("centered+procrustes").parallel
    assert not find_method("centered+lsar").parallel
    assert find_method("centered+lsar").language_dependent
    assert not find_method("lsar+lsar").language_dependent
    with pytest.raises(AlignmentError, match="Unknown alignment 'magic'. Choose from affine, centered"):
        find_method("centered+magic")
    made = find_method("centered+lsar")
    assert made.method == made.__name__ == "centered+lsar"
    assert made.__doc__ == "centered then lsar, as one map."
    assert [stage.method for stage in made.stages] == ["centered", "lsar"]
    assert {"rank"} <= set(make("centered+lsar").get_params())
    with pytest.raises(AlignmentError, match="centered.affine: direction='from_pivot'; stages map to the pivot"):
        make("centered+affine", direction="from_pivot")


def test_a_stage_that_fits_in_another_way_makes_another_composition(monkeypatch):
    before = {name: version_of(name) for name in ("centered+affine", "affine+lsar", "centered+lsar")}
    assert before["centered+affine"] == 1  # revisions of committed results are made of it
    monkeypatch.setattr(find_method("affine"), "version", find_method("affine").version + 1)
    composed.cache_clear()
    after = {name: version_of(name) for name in before}
    assert after["centered+lsar"] == before["centered+lsar"]
    assert all(after[name] != before[name] for name in ("centered+affine", "affine+lsar"))


def test_centring_before_a_rotation_finds_a_planted_one_that_a_shift_hides():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((8, 8))).Q
    x = rng.standard_normal((60, 8))
    data = {"deu-Latn": x, "eng-Latn": x @ turn + 5}
    both = make("centered+procrustes", normalize=False).fit(data)
    centred = Centered().fit(data)
    np.testing.assert_allclose(
        both.transform(x, "deu-Latn"), centred.transform(data["eng-Latn"], "eng-Latn"), atol=1e-9
    )
