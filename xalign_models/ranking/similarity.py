"""Similarity of two spaces without a map between them."""

import numpy as np
from scipy.stats import rankdata

from xalign_models.linalg.arrays import AnyFloats, Float64


def linear_cka(x: AnyFloats, y: AnyFloats) -> float:
    """Linear centred kernel alignment, ||Xc^T Yc||^2 / (||Xc^T Xc|| ||Yc^T Yc||) (Kornblith et al., 2019).

    Args:
        x: Embeddings (n, d).
        y: Row-aligned embeddings (n, m).

    Returns:
        In [0, 1]; 1 for spaces that are equal up to rotation and scale, 0 if one is constant.
    """
    x, y = x - x.mean(axis=0, dtype=np.float64), y - y.mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.square(x.T @ y).sum() / lengths) if lengths else 0.0


def rsa(x: AnyFloats, y: AnyFloats) -> float:
    """Representational similarity: Spearman's correlation of the cosines within x and within y, over pairs of rows.

    Args:
        x: Embeddings (n, d), n >= 3.
        y: Row-aligned embeddings (n, m).
    """
    upper = np.triu_indices(len(x), 1)
    ranks = [rankdata((unit @ unit.T)[upper]) for unit in (_unit(x), _unit(y))]
    a, b = (side - side.mean() for side in ranks)
    lengths = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / lengths) if lengths else 0.0


def _unit(rows: AnyFloats) -> Float64:
    rows = rows.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float64).tiny))
