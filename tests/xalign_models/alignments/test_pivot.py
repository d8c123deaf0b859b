"""Procrustes and AffineMap recover what was planted, and agree with scipy, numpy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.linear_model import Ridge

from xalign_models.alignments import METHODS, AffineMap, Procrustes, load, make
from xalign_models.errors import AlignmentError, ModelError
from xalign_models.linalg.solvers import affine_distance, affine_lsq, procrustes

SHAPES = [(50, 12), (13, 12), (12, 12), (9, 12), (6, 12), (4, 12), (1, 12)]


def rotation(d, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d))).Q


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_procrustes_recovers_a_planted_rotation(n, d):
    x, turn = rows(n, d), rotation(d)
    weight = procrustes(x, x @ turn)
    np.testing.assert_allclose(weight @ weight.T, np.eye(d), atol=1e-12)
    mixtures = rows(7, n, seed=2) @ x  # anything in the row space
    np.testing.assert_allclose(mixtures @ weight, mixtures @ turn, atol=1e-6)
    if n >= d:
        np.testing.assert_allclose(weight, turn, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_procrustes_is_optimal_and_its_reverse_is_its_transpose(n, d):
    x, y = rows(n, d), rows(n, d, seed=3)
    weight, theirs = procrustes(x, y), scipy.linalg.orthogonal_procrustes(x, y)[0]
    np.testing.assert_allclose(np.linalg.norm(x @ weight - y), np.linalg.norm(x @ theirs - y), rtol=1e-12)
    np.testing.assert_allclose(x @ weight, x @ theirs, atol=1e-9)
    np.testing.assert_allclose(procrustes(y, x), weight.T, atol=1e-9)
    if n >= d:
        np.testing.assert_allclose(weight, theirs, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), SHAPES[:-1])
def test_procrustes_of_rows_short_of_full_rank_is_orthogonal_and_optimal(n, d):
    x, y = rows(n, d), rows(n, d, seed=3)
    x[1], y[2] = x[0], y[0]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    weight, theirs = procrustes(x, y), scipy.linalg.orthogonal_procrustes(x, y)[0]
    np.testing.assert_allclose(weight @ weight.T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(x @ weight - y), np.linalg.norm(x @ theirs - y), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 4, 6, 9, 11])
def test_procrustes_is_nearest_the_identity_where_the_data_are_silent(n):
    """The limit of the polar factor of X^T Y + eps I, which is that map."""
    d = 12
    x, y = rows(n, d), rows(n, d, seed=3)
    u, _, vt = np.linalg.svd(x.T @ y + 1e-7 * np.eye(d))
    np.testing.assert_allclose(procrustes(x, y), u @ vt, atol=1e-5)
    np.testing.assert_allclose(procrustes(x, x), np.eye(d), atol=1e-10)


def test_procrustes_of_float32_rows_is_as_good_to_1e_6():
    x = rows(400, 24).astype(np.float32)
    y = (x @ rotation(24) + 0.5 * rows(400, 24, seed=3)).astype(np.float32)
    single, double = procrustes(x, y), procrustes(x.astype(np.float64), y.astype(np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, atol=1e-6)
    np.testing.assert_allclose(single.T @ single, np.eye(24), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(x @ single - y), np.linalg.norm(x @ double - y), rtol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_procrustes_prepares_rows_as_its_fields_say(normalize, center):
    x, y = rows(40, 5) * rows(40, 1, seed=5) ** 2 + 1, rows(40, 5, seed=6) - 2
    a, b = ((m / np.linalg.norm(m, axis=1)[:, None] if normalize else m) for m in (x, y))
    a, b = ((m - m.mean(0) if center else m) for m in (a, b))
    weight = scipy.linalg.orthogonal_procrustes(a, b)[0]
    model = Procrustes("p", normalize, center).fit({"l": x, "p": y})
    shift = y.mean(0) - x.mean(0) @ weight if center else 0
    np.testing.assert_allclose(model.transform(x, "l"), x @ weight + shift, atol=1e-9)
    if center:
        np.testing.assert_allclose(model.transform(x, "l").mean(0), y.mean(0), atol=1e-9)


def test_procrustes_names_a_row_without_direction():
    x = rows(3, 2)
    x[1] = 0
    with pytest.raises(AlignmentError, match="deu-Latn: row 1 is zero"):
        Procrustes().fit({"deu-Latn": x, "eng-Latn": rows(3, 2)})


def test_affine_recovers_a_planted_map_both_ways():
    x, weight, shift = rows(60, 8), rows(8, 8, seed=1), rows(1, 8, seed=2)
    data = {"deu-Latn": x, "eng-Latn": x @ weight + shift}
    there = AffineMap(ridge=0).fit(data)
    np.testing.assert_allclose(there.weights_[1], weight, atol=1e-9)
    np.testing.assert_allclose(there.shifts_[1], shift[0], atol=1e-9)
    back = AffineMap(ridge=0, direction="from_pivot").fit(data)
    np.testing.assert_allclose(back.weights_[1], np.linalg.inv(weight), atol=1e-8)
    np.testing.assert_allclose(back.transform(data["eng-Latn"], "deu-Latn"), x, atol=1e-8)
    there = AffineMap(loss="distance").fit(data)
    np.testing.assert_allclose(there.transform(x, "deu-Latn"), data["eng-Latn"], atol=0.01)
    back = AffineMap(loss="distance", direction="from_pivot").fit(data)
    np.testing.assert_allclose(back.transform(data["eng-Latn"], "deu-Latn"), x, atol=0.01)


def test_affine_equals_numpy_and_scikit_learn():
    x, y = rows(30, 6) + 3, rows(30, 6, seed=1) - 1
    weight, shift = affine_lsq(x, y)
    theirs = np.linalg.lstsq(np.c_[x, np.ones(30)], y)[0]
    np.testing.assert_allclose(np.vstack([weight, shift]), theirs, atol=1e-10)
    weight, shift = affine_lsq(x, y, ridge=0.1)
    ridge = Ridge(alpha=0.1 * np.square(x - x.mean(0)).sum() / 6).fit(x, y)
    np.testing.assert_allclose(weight, ridge.coef_.T, atol=1e-10)
    np.testing.assert_allclose(shift, ridge.intercept_, atol=1e-10)


def test_affine_falls_back_to_an_orthogonal_solver_when_the_normal_equations_would_lose_the_answer():
    x = rows(40, 6) * np.array([1, 1, 1, 1, 1, 1e-7])  # condition number 1e7, squared 1e14
    weight = rows(6, 6, seed=1)
    np.testing.assert_allclose(affine_lsq(x, x @ weight)[0], weight, rtol=1e-6)
    np.testing.assert_allclose(affine_lsq(x, x @ weight[:, :4])[0], weight[:, :4], rtol=1e-6)
    x[:, 5] = x[:, 4]  # singular: the minimum-norm solution
    found, shift = affine_lsq(x, x @ weight)
    np.testing.assert_allclose(x @ found + shift, x @ weight, atol=1e-10)
    np.testing.assert_allclose(found[5], found[4], atol=1e-10)


def test_affine_needs_pairs_or_a_ridge():
    x, y = rows(6, 6), rows(6, 6, seed=1)
    with pytest.raises(
        AlignmentError, match=r"deu-Latn: 6 pairs do not determine .* dimension 6; pass >= 7 or a ridge"
    ):
        AffineMap(ridge=0).fit({"deu-Latn": x, "eng-Latn": y})
    with pytest.warns(UserWarning, match="only the ridge"):
        weight, _ = affine_lsq(x, y, ridge=1e-4)
    assert np.isfinite(weight).all()


def test_distance_is_stationary_in_its_objective_and_never_below_the_identity_on_held_out_rows():
    rng = np.random.default_rng(0)
    x = rows(400, 4)
    y = x @ rows(4, 4, seed=1) + rng.standard_t(2, (400, 4))
    weight, shift = affine_distance(x, y, validation=0.01, steps=500, patience=500)

    def objective(w, b):
        return np.linalg.norm(x @ w + b - y, axis=1).mean()

    best = objective(weight, shift)
    assert best < objective(*affine_lsq(x, y))
    for _ in range(20):  # convex: no small step does much better
        assert objective(weight + 0.02 * rng.standard_normal((4, 4)), shift) > best - 2e-3


def test_distance_resists_an_outlier_that_moves_least_squares():
    x, weight = rows(200, 4), rows(4, 4, seed=1)
    y = x @ weight
    y[7] += 1000
    by_square, by_distance = (
        AffineMap(loss=loss, ridge=0).fit({"l": (x, y)}).weights_[1] for loss in ("lsq", "distance")
    )
    assert np.abs(by_distance - weight).max() < 0.05
    assert np.abs(by_square - weight).max() > 1


def test_distance_is_reproducible_stops_early_and_stays_near_the_identity_on_few_rows():
    x = rows(14, 10)
    y = x + 0.5 * rows(14, 10, seed=1)
    one, two = affine_distance(x, y, seed=3), affine_distance(x, y, seed=3)
    np.testing.assert_array_equal(one[0], two[0])
    fresh = rows(500, 10, seed=2)
    error = {
        name: np.linalg.norm(fresh @ weight + shift - fresh, axis=1).mean()
        for name, (weight, shift) in {"lsq": affine_lsq(x, y), "distance": one}.items()
    }
    assert error["distance"] < error["lsq"]


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if cls.parallel])
def test_pairs_equal_shared_rows_and_the_pivot_stays(method, parallel):
    pivot = parallel["eng-Latn"]
    shared = make(method).fit(parallel)
    pairs = make(method).fit({one: (x, pivot) for one, x in parallel.items() if one != "eng-Latn"})
    mixed = make(method).fit({**parallel, "tur-Latn": (parallel["tur-Latn"][:30], pivot[:30])})
    assert shared.languages_ == pairs.languages_ == mixed.languages_ == ("eng-Latn", "deu-Latn", "tur-Latn")
    for name in shared.arrays:
        one, two, three = (getattr(fitted, name) for fitted in (shared, pairs, mixed))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one[:2], three[:2])
    x = parallel["tur-Latn"]
    assert np.abs(shared.transform(x, "tur-Latn") - mixed.transform(x, "tur-Latn")).max() > 1e-6
    np.testing.assert_array_equal(shared.transform(pivot, "eng-Latn"), pivot)


def test_rows_that_are_not_parallel_are_counted():
    x = rows(5, 3)
    for data, message in (
        ({"eng-Latn": x, "deu-Latn": x[:4]}, "not aligned: eng-Latn 5, deu-Latn 4"),
        ({"deu-Latn": (x, x[:4])}, "not aligned: deu-Latn 5, eng-Latn 4"),
        ({"deu-Latn": x}, "pivot eng-Latn is not among deu-Latn"),
        ({"eng-Latn": x}, "no language besides the pivot"),
        ({"deu-Latn": (x, np.full((5, 3), np.nan))}, "deu-Latn's pivot side, row 0 is not finite"),
        ({"deu-Latn": (x, x[:, :2])}, "dimensions differ: deu-Latn 3, deu-Latn's pivot side 2"),
    ):
        with pytest.raises(AlignmentError, match=message):
            Procrustes().fit(data)


@pytest.mark.parametrize(
    "params",
    [
        {"loss": "l1"},
        {"direction": "up"},
        {"ridge": -1},
        {"ridge": float("nan")},
        {"validation": 1.0},
        {"seed": -1},
    ],
)
def test_affine_fields_are_checked(params):
    with pytest.raises(AlignmentError, match=next(iter(params))):
        AffineMap(**params)


@pytest.mark.parametrize("device", ["cudaa", "cpux:0"])
def test_a_device_that_is_not_there_is_refused_by_a_fit_and_not_by_what_was_fitted(device, parallel, tmp_path):
    with pytest.raises(ModelError, match=f"--device {device} is not usable on this machine; usable: cpu"):
        AffineMap(loss="distance", device=device).fit(parallel)
    fitted = AffineMap(loss="distance").fit(parallel)
    fitted.device = device  # as if fitted there
    fitted.save(tmp_path)
    assert load(tmp_path).fingerprint() == fitted.fingerprint()


def test_fewer_pairs_than_dimensions_are_warned_of_with_what_to_use_instead(recwarn):
    few = {"deu-Latn": (rows(7, 8), rows(7, 8, seed=1))}
    with pytest.warns(UserWarning, match=r"procrustes: fewer pairs \(deu-Latn 7\) than dimensions \(8\); use affine.$"):
        Procrustes().fit(few)
    recwarn.clear()
    for method in (AffineMap(), AffineMap(loss="distance"), Procrustes(shrink=None), Procrustes(shrink=0.1)):
        method.fit(few)
    Procrustes().fit({"deu-Latn": (rows(8, 8), rows(8, 8, seed=1))})
    assert not recwarn.list
