"""After LEACE all languages have one mean, and the map is the paper's formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orth, sqrtm
from sklearn.linear_model import LogisticRegression

from xalign_models.alignments import LEACE
from xalign_models.alignments.groups import group, language_of
from xalign_models.errors import AlignmentError


def languages(rows=200, dim=10, count=4, seed=0):
    """Languages that differ in mean and spread, with directions of unequal variance."""
    rng = np.random.default_rng(seed)
    spread = np.geomspace(0.1, 3, dim)
    turn = np.linalg.qr(rng.standard_normal((dim, dim))).Q
    return {
        f"l{i}": (rng.standard_normal((rows, dim)) * spread * rng.uniform(0.5, 2)) @ turn + rng.standard_normal(dim)
        for i in range(count)
    }


def test_it_is_the_papers_formula():
    """Theorem 4.3 in column vectors, with one-hot labels, matrix square roots and a projector by pseudo-inverse."""
    data = languages()
    x, z = np.concatenate([*data.values()]), np.repeat(np.eye(4), 200, axis=0)
    mean = x.mean(axis=0)
    covariance = (x - mean).T @ (x - mean) / len(x)
    cross = (x - mean).T @ (z - z.mean(axis=0)) / len(x)
    whiten = np.linalg.inv(np.real(sqrtm(covariance)))
    projector = (whiten @ cross) @ np.linalg.pinv(
        whiten @ cross, rcond=1e-10
    )  # three ranks; rounding of the fourth is noise
    expected = np.stack([row - np.linalg.inv(whiten) @ projector @ whiten @ (row - mean) for row in x])
    np.testing.assert_allclose(LEACE(shrink=0.0).fit(data).transform(x), expected, atol=1e-9)


@pytest.mark.parametrize(("rows", "dim"), [(200, 10), (5, 40), (1, 3)])
@pytest.mark.parametrize("shrink", [None, 0.3, 1.0])
def test_means_become_equal_whatever_the_covariance(rows, dim, shrink):
    data = languages(rows, dim)
    fitted = LEACE(shrink=shrink).fit(data)
    means = np.stack([fitted.transform(x).mean(axis=0) for x in data.values()])
    mean = np.mean([x.mean(axis=0) for x in data.values()], axis=0)
    np.testing.assert_allclose(means, np.stack([mean] * len(data)), atol=1e-8)
    twice = fitted.transform(fitted.transform(data["l0"]))
    np.testing.assert_allclose(twice, fitted.transform(data["l0"]), atol=1e-8)


def test_no_linear_probe_knows_the_language():
    data = languages()
    labels = np.repeat([*data], 200)
    before = np.concatenate([*data.values()])
    after = LEACE().fit(data).transform(before)
    odds = [LogisticRegression(C=1e4, max_iter=1000).fit(x, labels).predict_proba(x) for x in (before, after)]
    assert np.abs(odds[0] - 0.25).max() > 0.5
    assert np.abs(odds[1] - 0.25).max() < 0.01


def test_a_language_weighs_the_same_whatever_its_rows():
    data = languages()
    more = data | {"l1": np.concatenate([data["l1"]] * 7)}
    np.testing.assert_allclose(LEACE(shrink=0.1).fit(more).weights_, LEACE(shrink=0.1).fit(data).weights_, atol=1e-9)


def test_the_change_is_least_of_all_maps_that_equal_the_means():
    """Against removing the same directions at a right angle, as LSAR does, in the norm of the inverse covariance."""
    data = languages()
    x = np.concatenate([*data.values()])
    means = np.stack([rows.mean(axis=0) for rows in data.values()])
    basis = orth((means - means.mean(axis=0)).T)
    inverse = np.linalg.inv(np.cov(x.T))

    def change(mapped):
        return np.einsum("ni,ij,nj->n", x - mapped, inverse, x - mapped).mean()

    centred = x - means.mean(axis=0)
    assert change(LEACE(shrink=0.0).fit(data).transform(x)) < change(x - centred @ basis @ basis.T)


def test_one_language_and_equal_rows_change_nothing():
    x = np.random.default_rng(0).standard_normal((9, 4))
    np.testing.assert_allclose(LEACE().fit({"a": x}).transform(x), x, atol=1e-9)
    np.testing.assert_allclose(LEACE().fit({"a": np.ones((3, 4)), "b": np.ones((2, 4))}).transform(x), x, atol=1e-9)
    with pytest.raises(AlignmentError, match="shrink=2"):
        LEACE(shrink=2)


def test_the_offset_between_prompts_is_not_of_a_language():
    """Every prompt's languages get one mean; a planted offset of prompts, apart from those of languages, stays."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 12))
    x -= x.mean(axis=0)
    of_language, of_prompt = (
        dict(zip("abc", np.eye(12)[:3], strict=True)),
        {"query: ": 0, "passage: ": 5 * np.eye(12)[4]},
    )
    data = {group(a, p): x + 3 * of_language[a] + of_prompt[p] for a in of_language for p in of_prompt}
    fitted = LEACE().fit(data)
    means = {key: fitted.transform(rows).mean(axis=0) for key, rows in data.items()}
    for key, mean in means.items():
        prompt = key.removeprefix(language_of(key))
        np.testing.assert_allclose(mean, means[f"a{prompt}"], atol=1e-9)
    kept = means[group("a", "passage: ")] - means[group("a", "query: ")]
    assert np.linalg.norm(kept - of_prompt["passage: "]) < 0.2
    one = LEACE().fit({group("a", p): data[group("a", p)] for p in of_prompt})
    np.testing.assert_allclose(one.weights_[0], np.eye(12), atol=1e-9)
