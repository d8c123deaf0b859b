"""The linear algebra of the alignments: pure functions of row matrices, computing in float64.

Gram matrices (one n d^2 product) where squaring the condition number does not matter, else orthogonal factorisations.
"""

import warnings

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, svd

from xalign_models.errors import AlignmentError
from xalign_models.linalg.arrays import AnyFloats, Float64

_EPS = float(np.finfo(np.float64).eps)


def lsar_subspace(means: AnyFloats, rank: int, noise: float = 0.0) -> tuple[Float64, Float64, Float64]:
    """Language-specific low-rank subspace of the language means (LSAR).

    With the means as the rows of M and mu' their mean, the leading right singular directions C of M - 1 mu' span the
    subspace, and mu = mu' - C C^T mu' is the language-agnostic part. Equal to the paper's two SVDs and pseudo-inverse,
    because all its truncated means lie in mu' + span(C); and exact where the pseudo-inverse is ill-conditioned.

    Args:
        means: Language means (L, d).
        rank: Number of directions; reduced to the numerical rank of the centred means, which is at most L - 1.
        noise: Rounding error of the means; smaller singular values count as zero.

    Returns:
        mu (d,); C (d, r) with orthonormal columns; all min(L, d) singular values of the centred means, descending.
    """
    means = means.astype(np.float64)
    centre = means.mean(axis=0)
    _, singular, directions = np.linalg.svd(means - centre, full_matrices=False)
    noise = max(noise, _EPS * max(means.shape) * np.linalg.norm(means))  # centring leaves rounding of M's size
    basis = directions[: min(rank, np.count_nonzero(singular > noise))].T.copy()
    return centre - basis @ (basis.T @ centre), basis, singular


def lir_directions(x: AnyFloats, k: int) -> Float64:
    """Leading right singular directions of the uncentred rows (LIR), from the smaller Gram matrix.

    Args:
        x: Embeddings (n, d).
        k: Number of directions, at most min(n, d).

    Returns:
        (d, k), orthonormal columns by falling singular value; columns beyond the rank of ``x`` are zero.
    """
    x = x.astype(np.float64)
    n, d = x.shape
    values, vectors = np.linalg.eigh(x.T @ x if n >= d else x @ x.T)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    real = values > _EPS * max(n, d) * max(values, default=0.0)
    if n < d:
        vectors = x.T @ vectors / np.sqrt(np.where(real, values, 1.0))
    directions: Float64 = vectors * real
    return directions


def procrustes(x: AnyFloats, y: AnyFloats) -> AnyFloats:
    """Orthogonal W that minimises ||X W - Y||_F: the polar factor of X^T Y.

    Fewer rows than dimensions leave W free outside the rows' spans; there it is the orthogonal map nearest the
    identity. The reverse map is the transpose: ``procrustes(y, x) == procrustes(x, y).T``. Both hold for rows of full
    rank, min(n, d). With repeated rows, or at most d centred ones, W is any of the minimisers.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, d).

    Returns:
        W (d, d), orthogonal: float32 for float32 rows with n >= d, orthogonal and optimal to 1e-6 and twice as fast;
        otherwise float64.
    """
    n, d = x.shape
    if n < d or not x.dtype == y.dtype == np.float32:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if n >= d:
        return polar(x.T @ y)
    weight: Float64
    if 2 * n < d:  # W differs from the identity only in the joint row space, of dimension 2n
        basis = np.linalg.qr(np.concatenate([x, y]).T).Q
        weight = np.eye(d) + basis @ (procrustes(x @ basis, y @ basis) - np.eye(2 * n)) @ basis.T
    else:  # the spans of X and Y onto each other, and their complements onto each other
        (qx, rx), (qy, ry) = np.linalg.qr(x.T, mode="complete"), np.linalg.qr(y.T, mode="complete")
        weight = qx[:, :n] @ polar(rx[:n] @ ry[:n].T) @ qy[:, :n].T
        weight += qx[:, n:] @ polar(qx[:, n:].T @ qy[:, n:]) @ qy[:, n:].T
    return weight


def affine_lsq(x: AnyFloats, y: AnyFloats, ridge: float = 0.0) -> tuple[Float64, Float64]:
    """Affine least squares: W, b minimising sum |x W + b - y|^2 + lambda ||W||_F^2, the offset not penalised.

    Cholesky of the normal equations; when they are too ill-conditioned for it, least squares by orthogonal
    factorisation (minimum norm).

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, m).
        ridge: lambda in units of the mean variance, lambda = ridge * tr(Xc^T Xc) / d: scale-free.

    Returns:
        W (d, m) and b (m,).

    Raises:
        AlignmentError: Fewer than d + 1 rows without ridge.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    n, d = x.shape
    if n <= d:
        if not ridge:
            raise AlignmentError(
                f"{n} pairs do not determine an affine map of dimension {d}; pass >= {d + 1} or a ridge."
            )
        warnings.warn(f"{n} pairs for an affine map of dimension {d}: only the ridge determines it.", stacklevel=2)
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    xc, yc = x - x_mean, y - y_mean
    gram = xc.T @ xc
    penalty = ridge * np.trace(gram) / d
    gram[np.diag_indices(d)] += penalty
    try:
        factor = cho_factor(gram, lower=True, check_finite=False)
        scales = np.diagonal(factor[0])
        if scales.min() < 1e-6 * scales.max():  # a condition number of 1e12 leaves under five digits
            raise LinAlgError
        weight = cho_solve(factor, xc.T @ yc, check_finite=False)
    except LinAlgError:
        rows = np.concatenate([xc, np.sqrt(penalty) * np.eye(d)])
        weight = np.linalg.lstsq(rows, np.concatenate([yc, np.zeros((d, yc.shape[1]))]))[0]
    return weight, y_mean - x_mean @ weight


def affine_distance(
    x: AnyFloats,
    y: AnyFloats,
    *,
    validation: float = 0.1,
    seed: int = 0,
    steps: int = 200,
    patience: int = 10,
    device: str = "cpu",
) -> tuple[Float64, Float64]:
    """Affine map minimising the mean unsquared distance, mean |x W + b - y|, by L-BFGS with early stopping.

    The objective is convex. The descent starts from the identity and keeps the best map on held-out rows, so that few
    rows give a map near the identity; on noisy rows, starting from least squares ended no better with n >> d, and far
    worse with n near d.

    Args:
        x: Embeddings (n, d), n >= 2.
        y: Row-aligned target (n, d).
        validation: Share of the rows held out, in (0, 1); at least one row.
        seed: Random seed of the split.
        steps: Maximum number of validations; each follows 5 iterations.
        patience: Number of validations without a relative gain of 1e-4 before stopping.
        device: Torch device, which computes in float64.

    Returns:
        W (d, d) and b (d,).

    Raises:
        AlignmentError: Too few rows for a held-out split.
    """
    import torch

    n, d = x.shape
    if n < 2:
        raise AlignmentError("the distance fit holds rows out for validation; pass at least 2 pairs.")
    held = min(max(1, round(validation * n)), n - 1)
    order = np.random.default_rng(seed).permutation(n)
    xt, yt, xv, yv = (
        torch.as_tensor(part, dtype=torch.float64, device=device)
        for part in (x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]])
    )
    x_mean, y_mean = xt.mean(dim=0), yt.mean(dim=0)  # centred coordinates condition the descent
    weight = torch.eye(d, dtype=torch.float64, device=device, requires_grad=True)
    shift = torch.zeros(d, dtype=torch.float64, device=device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, shift], max_iter=5, line_search_fn="strong_wolfe")

    def distance(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        lengths: torch.Tensor = torch.linalg.vector_norm((source - x_mean) @ weight + shift - (target - y_mean), dim=1)
        return lengths.mean()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = distance(xt, yt)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def state() -> tuple[float, torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            return distance(xv, yv).item(), weight.detach().clone(), shift.detach().clone()

    best, stale = state(), 0
    for _ in range(steps):
        with torch.enable_grad():
            optimizer.step(closure)  # type: ignore[no-untyped-call]
        now = state()
        stale = 0 if now[0] < best[0] * (1 - 1e-4) else stale + 1
        best = min(best, now, key=lambda candidate: candidate[0])
        if stale == patience:
            break
    _, best_weight, offset = best
    return best_weight.cpu().numpy(), (offset + y_mean - x_mean @ best_weight).cpu().numpy()


def polar(matrix: AnyFloats) -> AnyFloats:
    """The orthogonal factor U V^T (d, d) of M = U S V^T, in M's precision."""
    left, _, right = svd(matrix, check_finite=False)  # numpy's is as slow in float32 as in float64
    rotation: AnyFloats = left @ right
    return rotation
