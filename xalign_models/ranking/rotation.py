"""Ranks under the rotation between two languages, and the rotation of many pairs at once on an accelerator."""

import numpy as np
import torch
from torch import Tensor

from xalign_models.linalg.arrays import Float32
from xalign_models.linalg.solvers import procrustes
from xalign_models.ranking.ranks import Ranks, gold_ranks, normalise

_NEWTON_STEPS = 60  # 1.5^60 = 3.7e10: singular values above the largest over this number converge to one
_ORTHOGONAL = 1e-9


def rotated_ranks(fit_a: Float32, fit_b: Float32, a: Float32, b: Float32) -> tuple[Ranks, Ranks]:
    """Ranks of the counterparts before and after the rotation that takes ``fit_a`` closest to ``fit_b``.

    Args:
        fit_a: (m, d) rows the rotation is fitted on; row i of ``fit_b`` is the counterpart of row i.
        fit_b: (m, d).
        a: (n, d) unit rows that are ranked; row i of ``b`` is the counterpart of row i.
        b: (n, d) unit rows.

    Returns:
        For a_i among the rows of b, and for b_i among those of a: (2, n) ranks before and after; 1 is best.
    """
    turned = normalise(a @ procrustes(fit_a, fit_b).astype(np.float32))
    forward, backward = zip(gold_ranks(a, b), gold_ranks(turned, b), strict=True)
    return np.stack(forward), np.stack(backward)


def polar(matrices: Tensor) -> Tensor:
    """The orthogonal factor U V^T of each M = U S V^T, (k, d, d) float64.

    An accelerator uses Newton-Schulz, X <- (3 X - X X^T X) / 2 from M / |M|_2, which needs only batched products,
    whereas its SVD takes one matrix after another. Matrices that do not become orthogonal (a singular value below 1e-10
    of the largest), and all matrices on a CPU, use SVD.
    """
    return polar_by_svd(matrices) if matrices.device.type == "cpu" else polar_by_either(matrices)


def polar_by_either(matrices: Tensor) -> Tensor:
    """:func:`polar` by products, and by SVD for the matrices that do not become orthogonal."""
    factors, good = polar_by_products(matrices)
    if not bool(good.all()):
        factors[~good] = polar_by_svd(matrices[~good])
    return factors


def polar_by_svd(matrices: Tensor, driver: str | None = None) -> Tensor:
    """:func:`polar` by SVD; ``driver`` is torch's name of a cuSOLVER routine."""
    left, _, right = torch.linalg.svd(matrices, full_matrices=False, driver=driver)
    product: Tensor = left @ right
    return product


def polar_by_products(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`polar` by Newton-Schulz, and (k,) whether each matrix became orthogonal."""
    x = matrices / _bound(matrices)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    good = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for step in range(_NEWTON_STEPS):
        gram = x.mT @ x
        if step % 4 == 3:
            good = (gram - eye).abs().amax(dim=(1, 2)) < _ORTHOGONAL
            if bool(good.all()):
                break
        x = 1.5 * x - 0.5 * (x @ gram)
    return x, good


def _bound(matrices: Tensor) -> Tensor:
    """(k, 1, 1): upper bound of the largest singular value, the minimum of sqrt(|M|_1 |M|_inf) and |M|_F."""
    size = matrices.abs()
    norms = (size.sum(1).amax(1) * size.sum(2).amax(1)).sqrt()
    return torch.minimum(norms, torch.linalg.matrix_norm(matrices))[:, None, None]
