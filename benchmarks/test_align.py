"""Fitting and applying alignments: each solver against a naive alternative that gives equal results."""

import warnings

import numpy as np
import pytest
import scipy.linalg
import torch

from benchmarks.devices import every_device
from xalign_models.alignments import Alignment, make
from xalign_models.alignments.module import Aligned
from xalign_models.linalg.solvers import affine_lsq, lir_directions, lsar_subspace, procrustes

ROWS = 4000
LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")
METHODS = ("centered", "lir-1", "lir-15", "lsar", "procrustes", "affine")


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows (n, d) in float32, with an offset and a falling spectrum like those of embeddings."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, d + 1) ** -0.5
    basis = np.linalg.qr(rng.standard_normal((d, d))).Q
    return (rng.standard_normal((n, d)) * scales @ basis + 0.1).astype(np.float32)


def made(method: str) -> Alignment:
    name, _, k = method.partition("-")
    return make(name, **({"k": int(k)} if k else {}))


@pytest.mark.quick
def test_lir(compare, d):
    """Eigenvectors of the Gram matrix against singular vectors of the data."""
    x = rows(ROWS, d)
    pair = compare(
        lambda: lir_directions(x, 15),
        lambda: np.linalg.svd(x.astype(np.float64), full_matrices=False).Vh[:15].T,
        "SVD of the rows",
        rounds=3,
    )
    np.testing.assert_allclose(pair.ours @ pair.ours.T, pair.theirs @ pair.theirs.T, atol=1e-8)


@pytest.mark.parametrize("part", ["1/4", "3/4"])
def test_procrustes_with_fewer_rows_than_dimensions(compare, d, part):
    """Few-shot Procrustes in the span of the rows against scipy's SVD of a singular d x d matrix.

    Outside the span, scipy's map is arbitrary and ours is the nearest to the identity. The mapped rows are equal.
    """
    n = d * int(part[0]) // 4
    x, y = rows(n, d).astype(np.float64), rows(n, d, seed=1).astype(np.float64)
    pair = compare(lambda: procrustes(x, y), lambda: scipy.linalg.orthogonal_procrustes(x, y)[0], "scipy", rounds=3)
    np.testing.assert_allclose(pair.ours @ pair.ours.T, np.eye(d), atol=1e-10)
    np.testing.assert_allclose(x @ pair.ours, x @ pair.theirs, atol=1e-8)


@pytest.mark.quick
@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_procrustes_with_more_rows_than_dimensions(compare, d, precision):
    """Scipy's algorithm on rows of the same precision; both take the time of one SVD."""
    x = rows(ROWS, d).astype(precision)
    y = (x @ np.linalg.qr(rows(d, d, seed=1)).Q + 0.3 * rows(ROWS, d, seed=2)).astype(precision)
    pair = compare(lambda: procrustes(x, y), lambda: scipy.linalg.orthogonal_procrustes(x, y)[0], "scipy", rounds=7)
    x, y = x.astype(np.float64), y.astype(np.float64)
    exact = np.linalg.norm(x @ procrustes(x, y) - y)
    for found in (pair.ours.astype(np.float64), pair.theirs.astype(np.float64)):
        np.testing.assert_allclose(np.linalg.norm(x @ found - y), exact, rtol=1e-6)
        np.testing.assert_allclose(found.T @ found, np.eye(d), atol=5e-6)


@pytest.mark.quick
def test_affine(compare, d):
    """Cholesky of the normal equations against least squares with a column of ones."""
    x, y = rows(ROWS, d).astype(np.float64), rows(ROWS, d, seed=1).astype(np.float64)

    def theirs():
        solution = np.linalg.lstsq(np.column_stack([x, np.ones(ROWS)]), y)[0]
        return solution[:d], solution[d]

    pair = compare(lambda: affine_lsq(x, y), theirs, "lstsq", rounds=3)
    for ours, naive in zip(pair.ours, pair.theirs, strict=True):
        np.testing.assert_allclose(ours, naive, atol=1e-8)


@pytest.mark.quick
def test_lsar(compare, d):
    """The closed form against the paper's two SVDs and pseudo-inverse, for the 37 languages of Tatoeba."""
    means = rows(37, d).astype(np.float64)

    def paper():
        matrix, ones = means.T, np.ones((37, 1))
        centre = matrix @ ones / 37
        u, s, vt = np.linalg.svd(matrix - centre @ ones.T, full_matrices=False)
        truncated = centre @ ones.T + (u[:, :36] * s[:36]) @ vt[:36]
        direction = np.linalg.pinv(truncated).T @ ones
        mu = direction / np.linalg.norm(direction) ** 2
        return mu[:, 0], np.linalg.svd(truncated - mu @ ones.T, full_matrices=False)[0][:, :36]

    pair = compare(lambda: lsar_subspace(means, 36)[:2], paper, "the paper's way", rounds=9)
    (mu, basis), (their_mu, their_basis) = pair.ours, pair.theirs
    np.testing.assert_allclose(mu, their_mu, atol=1e-8)
    np.testing.assert_allclose(basis @ basis.T, their_basis @ their_basis.T, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_fit(clocked, note, method, d):
    """Each alignment fitted on three languages, from float32 rows to a map for each language."""
    data = {language: rows(ROWS, d, seed) for seed, language in enumerate(LANGUAGES)}
    alignment, seconds = clocked(lambda: made(method).fit(data), rounds=2, warmup_rounds=1)
    assert alignment.transform(data["deu-Latn"][:2], "deu-Latn").shape == (2, d)
    note(rows_per_s=3 * ROWS / seconds)


@pytest.mark.parametrize("method", METHODS)
@every_device
def test_apply(compare, note, device, method, d):
    """`Aligned` on rows of mixed languages, against a dense map for each language."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # few pairs for an affine map
        alignment = made(method).fit({code: rows(64, d, seed) for seed, code in enumerate(LANGUAGES)})
    module = Aligned.of(alignment).to(device)
    x = torch.from_numpy(rows(ROWS, d)).to(device)
    lang = [LANGUAGES[i % 3] for i in range(ROWS)]
    where = {code: torch.arange(i, ROWS, 3, device=device) for i, code in enumerate(LANGUAGES)}
    dense = {}
    for code in LANGUAGES:
        shift = alignment.transform(np.zeros((1, d)), code)
        parts = alignment.transform(np.eye(d), code) - shift, shift
        dense[code] = [torch.from_numpy(part.astype(np.float32)).to(device) for part in parts]

    def theirs():
        out = torch.empty_like(x)
        for code, index in where.items():
            matrix, shift = dense[code]
            out[index] = x[index] @ matrix + shift
        return out

    @torch.inference_mode()
    def ours():
        return module({"sentence_embedding": x, "lang": lang})["sentence_embedding"]

    pair = compare(ours, theirs, "dense maps", rounds=9)
    torch.testing.assert_close(pair.ours, pair.theirs, atol=2e-4, rtol=1e-4)
    note(rows_per_s=ROWS / pair.seconds)
