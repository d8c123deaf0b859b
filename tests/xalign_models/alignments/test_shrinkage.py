"""Penalties by the error of rows that were left out: equal to leaving them out, exact on exact data, safe on few."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from xalign_models.alignments import AffineMap, Procrustes, load
from xalign_models.alignments.shrinkage import GRID, ridge_by_leave_one_out, shrunk_procrustes
from xalign_models.errors import AlignmentError
from xalign_models.linalg.solvers import procrustes


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def rotation(d, seed=1):
    return np.linalg.qr(rows(d, d, seed)).Q


@pytest.mark.parametrize(("n", "noise"), [(20, 0.3), (20, 3.0), (9, 1.0), (6, 0.1)])
def test_the_penalty_is_the_one_that_leaving_each_row_out_in_turn_chooses(n, noise):
    d = 8
    x = rows(n, d) * np.linspace(0.2, 2, d) + 1
    y = x @ rows(d, d, 1) / 3 + noise * rows(n, d, 2)
    unit = np.square(x - x.mean(0)).sum() / d
    errors = []
    for penalty in ([0.0] if n > 2 * d else []) + [*GRID * unit]:
        out = [Ridge(penalty).fit(np.delete(x, i, 0), np.delete(y, i, 0)).predict(x[i : i + 1])[0] for i in range(n)]
        errors.append((np.square(out - y).sum(), penalty))
    expected = Ridge(min(errors)[1]).fit(x, y)
    weight, shift = ridge_by_leave_one_out(x, y)
    np.testing.assert_allclose(weight, expected.coef_.T, atol=1e-8)
    np.testing.assert_allclose(shift, expected.intercept_, atol=1e-8)


@pytest.mark.parametrize("shrink_to", ["identity", "zero"])
def test_an_affine_relation_is_recovered(shrink_to):
    x, weight, shift = rows(300, 48), rows(48, 48, 1), rows(1, 48, 2)
    fitted = AffineMap(shrink_to=shrink_to).fit({"l": (x, x @ weight + shift)})
    np.testing.assert_allclose(fitted.weights_[1], weight, atol=1e-6)
    np.testing.assert_allclose(fitted.transform(x, "l"), x @ weight + shift, atol=1e-6)


def test_an_affine_relation_is_recovered_where_a_layer_norm_leaves_a_direction_without_variance():
    d = 24
    x = rows(400, d)
    x[:, -1] = -x[:, :-1].sum(axis=1)  # rows sum to zero
    x = (x + rows(1, d, 1)).astype(np.float32)
    y = x @ rows(d, d, 2) + 1
    fitted = AffineMap().fit({"l": (x, y)})
    np.testing.assert_allclose(fitted.transform(x.astype(np.float64), "l"), y, atol=1e-4)
    assert np.abs(fitted.weights_[1]).max() < 10
    along = np.ones(d) / np.sqrt(d)
    np.testing.assert_allclose(along @ fitted.weights_[1], along, atol=1e-4)  # the identity's, as nothing says more


@pytest.mark.parametrize("n", [1, 2, 12, 40])
def test_few_noisy_pairs_leave_an_aligned_space_as_it_is_where_least_squares_ruins_it(n):
    d = 24
    x, fresh = rows(n, d), rows(500, d, 3)
    y = x + 0.8 * rows(n, d, 1)
    shrunk = AffineMap().fit({"l": (x, y)}).transform(fresh, "l")
    turned = Procrustes(shrink=None, normalize=False).fit({"l": (x, y)}).transform(fresh, "l")
    for moved in (shrunk, turned):
        assert np.linalg.norm(moved - fresh) < 0.6 * np.linalg.norm(fresh)
    if n == 40:
        least_squares = AffineMap(ridge=0).fit({"l": (x, y)}).transform(fresh, "l")
        assert np.linalg.norm(least_squares - fresh) > 2 * np.linalg.norm(shrunk - fresh)


def test_a_given_ridge_draws_to_the_identity_or_to_zero():
    x, y = rows(30, 6), rows(30, 6, 1)
    for target, limit in (("identity", np.eye(6)), ("zero", np.zeros((6, 6)))):
        fitted = AffineMap(ridge=1e9, shrink_to=target).fit({"l": (x, y)})
        np.testing.assert_allclose(fitted.weights_[1], limit, atol=1e-6)
        free = AffineMap(ridge=0, shrink_to=target).fit({"l": (x, y)}).weights_[1]
        np.testing.assert_allclose(free, np.linalg.lstsq(x - x.mean(0), y - y.mean(0))[0], atol=1e-9)


@pytest.mark.parametrize("n", [5, 12, 60])
def test_shrunk_procrustes_goes_from_the_rotation_to_the_identity(n):
    x, y = rows(n, 12), rows(n, 12, 1)
    np.testing.assert_array_equal(shrunk_procrustes(x, y, 0.0), procrustes(x, y))
    np.testing.assert_allclose(shrunk_procrustes(x, y, 1e9), np.eye(12), atol=1e-6)
    u, _, vt = np.linalg.svd(x.T @ y + 0.7 * np.linalg.norm(x) * np.linalg.norm(y) / 12 * np.eye(12))
    np.testing.assert_allclose(shrunk_procrustes(x, y, 0.7), u @ vt, atol=1e-10)


def test_shrunk_procrustes_takes_what_held_out_rows_say():
    turn = rotation(12)
    clean = rows(200, 12)
    np.testing.assert_allclose(shrunk_procrustes(clean, clean @ turn, None), turn, atol=1e-6)
    x = rows(14, 12)
    weight = shrunk_procrustes(x, x + 2 * rows(14, 12, 1), None)
    assert np.linalg.norm(weight - np.eye(12)) < np.linalg.norm(procrustes(x, x + 2 * rows(14, 12, 1)) - np.eye(12))


@pytest.mark.parametrize("make", [lambda: Procrustes(shrink=-1), lambda: AffineMap(shrink_to="one")])
def test_fields_are_checked(make):
    with pytest.raises(AlignmentError, match="shrink"):
        make()


def test_what_an_earlier_version_saved_is_read(tmp_path):
    """A file that lacks a parameter that was added since."""
    import json

    fitted = Procrustes().fit({"l": (rows(20, 4), rows(20, 4, 1))})
    fitted.save(tmp_path)
    header = json.loads((tmp_path / "alignment.json").read_text())
    del header["params"]["shrink"]
    header["fingerprint"] = fitted._fingerprint(header["params"])
    (tmp_path / "alignment.json").write_text(json.dumps(header))
    np.testing.assert_array_equal(load(tmp_path).weights_, fitted.weights_)


@pytest.mark.parametrize(("n", "noise"), [(14, 2.0), (30, 0.7), (3, 1.0)])
def test_the_shrinkage_is_the_one_that_five_folds_choose(n, noise):
    d = 8
    x = rows(n, d)
    y = x @ rotation(d) + noise * rows(n, d, 2)
    unit = np.linalg.norm(x) * np.linalg.norm(y) / d
    folds = [np.arange(n) % 5 == fold for fold in range(min(5, n))]

    def error(shrink):
        total = 0.0
        for held in folds:
            product = x[~held].T @ y[~held] + shrink * unit * (~held).mean() * np.eye(d)
            u, _, vt = np.linalg.svd(product)
            total += np.square(x[held] @ u @ vt - y[held]).sum()
        return total

    chosen = min([0.0, *GRID], key=error)
    np.testing.assert_allclose(shrunk_procrustes(x, y, None), shrunk_procrustes(x, y, chosen), atol=1e-9)
