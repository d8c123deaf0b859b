"""Linear maps shrunk towards the identity or zero, with the strength chosen on held-out rows.

Few noisy pairs leave most directions of a map undetermined; along them it should stay near the identity.
"""

import numpy as np

from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import polar, procrustes

GRID = np.geomspace(1e-4, 1e2, 13)
"""Penalties to choose from, in units of the mean variance; 0 is added if the rows determine a map."""
FOLDS = 5
_NULL = 1e-10  # of the mean variance: float32 rounding; an unpenalised map does not use such directions


def ridge_by_leave_one_out(x: AnyFloats, y: AnyFloats) -> tuple[Float64, Float64]:
    """Affine least squares, sum |x W + b - y|^2 + lambda ||W||_F^2, lambda by the leave-one-out error.

    That error is exact and in closed form: r_i / (1 - h_ii), with r the residuals and h the leverages of a fit on all
    rows. One eigendecomposition of the covariance serves every lambda. lambda = 0 is tried with n > 2 d rows.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, m).

    Returns:
        W (d, m) and b (m,). W is zero along directions in which ``x`` does not vary.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    n, d = x.shape
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred, target = x - x_mean, y - y_mean
    values, vectors = np.linalg.eigh(centred.T @ centred)
    unit = values.sum() / d
    components = centred @ vectors
    moments = components.T @ target
    squares = components**2
    best, chosen = np.inf, np.zeros(d)
    for penalty in (*([0.0] if n > 2 * d else []), *GRID * unit):
        weights = np.where(values > _NULL * unit, 1 / np.maximum(values + penalty, np.finfo(np.float64).tiny), 0.0)
        residuals = target - components @ (weights[:, None] * moments)
        influence = np.maximum(1 - 1 / n - squares @ weights, np.finfo(np.float64).eps)
        error = float((np.einsum("ij,ij->i", residuals, residuals) / influence**2).sum())
        if error < best:
            best, chosen = error, weights
    weight: Float64 = vectors @ (chosen[:, None] * moments)
    return weight, y_mean - x_mean @ weight


def shrunk_procrustes(x: AnyFloats, y: AnyFloats, shrink: float | None) -> Float64:
    """The rotation nearest X^T Y + lambda I, Procrustes shrunk to the identity.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, d).
        shrink: lambda in units of ||X||_F ||Y||_F / d, the mean singular value of equal spaces. None uses the value of
            :data:`GRID` and 0 with the least squared error on held-out rows, five folds.

    Returns:
        W (d, d), orthogonal.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    n, d = x.shape
    unit = float(np.linalg.norm(x) * np.linalg.norm(y)) / d
    product = x.T @ y
    if shrink is None:
        fold = np.arange(n) % FOLDS
        candidates = [0.0, *GRID]
        errors = np.zeros(len(candidates))
        for held in (fold == index for index in range(min(FOLDS, n))):
            train_product = product - x[held].T @ y[held]
            for i, candidate in enumerate(candidates):
                weight = polar(train_product + candidate * unit * (n - held.sum()) / n * np.eye(d))
                errors[i] += np.square(x[held] @ weight - y[held]).sum()
        shrink = candidates[int(errors.argmin())]
    weight = polar(product + shrink * unit * np.eye(d)) if shrink else procrustes(x, y)
    return np.asarray(weight, dtype=np.float64)
