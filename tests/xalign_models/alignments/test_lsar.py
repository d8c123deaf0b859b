"""LSAR: the properties of the method, each against the paper's own formulas."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xalign_models.alignments import LSAR
from xalign_models.errors import AlignmentError
from xalign_models.linalg.solvers import lsar_subspace

fast = settings(max_examples=25, derandomize=True, database=None)


@st.composite
def means_and_rank(draw):
    """Means (L, d), offset and scaled, with L - 1 <= d so that r = L - 1 is attainable; and a rank of at most L - 1."""
    count = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    means = rng.standard_normal((count, draw(st.integers(count, 10)))) + rng.standard_normal()
    return draw(st.sampled_from([1e-3, 1.0, 1e3])) * means, draw(st.integers(0, count - 1))


def projector(means, rank):
    basis = lsar_subspace(means, rank)[1]
    return basis @ basis.T


def paper(means, rank):
    """The algorithm as printed, columns and pseudo-inverse and all: (mu, projector)."""
    matrix = means.T
    ones = np.ones((matrix.shape[1], 1))
    centre = matrix @ ones / matrix.shape[1]
    u, s, vt = np.linalg.svd(matrix - centre @ ones.T, full_matrices=False)
    truncated = centre @ ones.T + (u[:, :rank] * s[:rank]) @ vt[:rank]
    direction = np.linalg.pinv(truncated, rcond=1e-9).T @ ones
    mu = direction / np.linalg.norm(direction) ** 2
    subspace = np.linalg.svd(truncated - mu @ ones.T, full_matrices=False)[0][:, :rank]
    return mu[:, 0], subspace @ subspace.T


@fast
@given(means_and_rank())
def test_equals_the_paper_with_its_two_svds_and_pseudo_inverse(case):
    means, rank = case
    mu, basis, _ = lsar_subspace(means, rank)
    expected_mu, expected_projector = paper(means, rank)
    scale = np.abs(means).max()
    np.testing.assert_allclose(mu / scale, expected_mu / scale, atol=1e-7)
    np.testing.assert_allclose(basis @ basis.T, expected_projector, atol=1e-7)


@fast
@given(means_and_rank())
def test_basis_is_orthonormal_and_mu_orthogonal_to_it(case):
    means, rank = case
    mu, basis, _ = lsar_subspace(means, rank)
    np.testing.assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(basis.T @ mu / np.abs(means).max(), 0, atol=1e-12)


@fast
@given(means_and_rank())
def test_projection_is_idempotent_orthogonal_to_the_basis_and_never_lengthens(case):
    means, rank = case
    model = LSAR(rank).fit(dict(enumerate_languages(means)))
    x = np.random.default_rng(0).standard_normal((20, means.shape[1]))
    once = model.transform(x)
    np.testing.assert_allclose(model.transform(once), once, atol=1e-12)
    np.testing.assert_allclose(once @ model.basis_, 0, atol=1e-12)
    assert (np.linalg.norm(once, axis=1) <= np.linalg.norm(x, axis=1) + 1e-12).all()


@fast
@given(means_and_rank())
def test_residual_is_the_sum_of_the_discarded_squared_singular_values(case):
    means, rank = case
    mu, basis, singular = lsar_subspace(means, rank)
    matrix = means.T - mu[:, None]
    residual = matrix - basis @ (basis.T @ matrix)  # Gamma^T = Ms^T (M - mu 1^T)
    scale = np.square(means).sum()
    np.testing.assert_allclose(np.square(residual).sum() / scale, np.square(singular[rank:]).sum() / scale, atol=1e-12)


@fast
@given(means_and_rank(), st.integers(0, 10**6))
def test_projector_ignores_order_scale_a_common_vector_and_duplicates(case, seed):
    means, rank = case
    rng = np.random.default_rng(seed)
    expected = projector(means, rank)
    common = rng.standard_normal(means.shape[1]) * np.abs(means).max()
    for same in (rng.permutation(means), 7.5 * means, means + common, np.concatenate([means, means])):
        np.testing.assert_allclose(projector(same, rank), expected, atol=1e-7)


@fast
@given(means_and_rank(), st.integers(0, 10**6))
def test_projector_turns_with_the_space(case, seed):
    means, rank = case
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((means.shape[1],) * 2)).Q
    np.testing.assert_allclose(projector(means @ turn, rank), turn.T @ projector(means, rank) @ turn, atol=1e-7)


@fast
@given(means_and_rank())
def test_spans_are_nested_in_the_rank(case):
    means, rank = case
    smaller, larger = projector(means, max(rank - 1, 0)), projector(means, rank)
    np.testing.assert_allclose(larger @ smaller, smaller, atol=1e-9)


@fast
@given(means_and_rank())
def test_at_full_rank_every_mean_maps_to_mu(case):
    means, _ = case
    model = LSAR().fit(dict(enumerate_languages(means)))
    scale = np.abs(means).max()
    np.testing.assert_allclose(model.transform(means) / scale, np.tile(model.mu_, (len(means), 1)) / scale, atol=1e-10)


def test_rank_zero_is_the_identity():
    x = np.random.default_rng(0).standard_normal((5, 4))
    model = LSAR(0).fit({"deu-Latn": x, "fra-Latn": 2 * x})
    np.testing.assert_array_equal(model.transform(x), x)
    np.testing.assert_allclose(model.mu_, 1.5 * x.mean(axis=0))


def test_zero_mean_gives_mu_zero_and_no_explosion():
    half = np.random.default_rng(0).standard_normal((3, 8))
    mu, basis, _ = lsar_subspace(np.concatenate([half, -half]), 5)
    np.testing.assert_allclose(mu, 0, atol=1e-14)
    assert basis.shape == (8, 3)
    mu, basis, _ = lsar_subspace(np.zeros((4, 8)), 3)
    assert basis.shape == (8, 0)
    assert not mu.any()


def test_default_rank_counts_every_language_and_any_language_may_ask():
    rng = np.random.default_rng(0)
    model = LSAR().fit({one: rng.standard_normal((9, 6)) for one in ("a", "b", "c")})
    assert model.rank_ == 2
    assert model.singular_values_.shape == (3,)
    x = rng.standard_normal((4, 6))
    for language in ("a", "never seen", None, ["a", "z", "b", "c"]):
        np.testing.assert_array_equal(model.transform(x, language), model.transform(x))


@pytest.mark.parametrize(("rank", "copies", "effective"), [(None, 2, 2), (5, 1, 2), (9, 1, 2)])
def test_rank_is_cut_to_the_numerical_rank_with_a_warning(rank, copies, effective):
    rng = np.random.default_rng(0)
    data = {
        f"{one}{copy}": rows for one in "abc" for rows in [rng.standard_normal((5, 6)) + 100] for copy in range(copies)
    }
    with pytest.warns(UserWarning, match="numerical rank"):
        model = LSAR(rank).fit(data)
    assert model.rank_ == effective


def test_one_language_without_a_rank_changes_nothing_and_says_so():
    rows = np.random.default_rng(0).standard_normal((5, 4))
    with pytest.warns(UserWarning, match="one language has no subspace"):
        np.testing.assert_array_equal(LSAR().fit({"deu-Latn": rows}).transform(rows), rows)


def test_one_language_allows_rank_zero_only():
    data = {"deu-Latn": np.random.default_rng(0).standard_normal((5, 4))}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LSAR(0).fit(data).rank_ == 0
    with pytest.warns(UserWarning, match="rank 1 cut to 0"):
        assert LSAR(1).fit(data).rank_ == 0


def test_means_are_taken_in_float64():
    rows = np.full((20_000, 2), 0.1, np.float16)
    np.testing.assert_allclose(LSAR(0).fit({"a": rows}).mu_, np.float64(np.float16(0.1)), rtol=1e-12)


def test_bad_input_is_rejected():
    with pytest.raises(AlignmentError, match="rank=-1"):
        LSAR(-1)
    with pytest.raises(AlignmentError, match="no languages"):
        LSAR().fit({})
    with pytest.raises(AlignmentError, match="deu-Latn, row 1 is not finite"):
        LSAR().fit({"fra-Latn": np.ones((2, 2)), "deu-Latn": np.array([[0.0, 1.0], [np.nan, 1.0]])})


def enumerate_languages(means):
    """Languages whose embeddings have exactly these means: one row each."""
    return ((f"l{i}", mean[None]) for i, mean in enumerate(means))
