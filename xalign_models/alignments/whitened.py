"""Whitened: centre each language and make its covariance a multiple of the identity (ZCA)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class Whitened(UnpairedAlignment):
    """``y = (x - mu_l) S_l^(-1/2) s_l``: the whitening that changes embeddings least; useful before a rotation.

    S_l is the Ledoit-Wolf estimate of the covariance, which is invertible with few rows and for encoders whose last
    LayerNorm leaves directions without variance; s_l^2 is its mean eigenvalue, so that white embeddings do not change.

    Attributes:
        weights_: (L, d, d), symmetric.
        shifts_: (L, d).
    """

    method = "whitened"
    arrays = ("weights_", "shifts_")

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        maps = [_whitening(rows.astype(np.float64)) for rows in matrices.values()]
        self.weights_, self.shifts_ = (np.stack(part) for part in zip(*maps, strict=True))


def _whitening(rows: Float64) -> tuple[Float64, Float64]:
    from sklearn.covariance import ledoit_wolf

    mean, dim = rows.mean(axis=0), rows.shape[1]
    if not np.ptp(rows, axis=0).any():
        return np.eye(dim), -mean
    values, vectors = np.linalg.eigh(ledoit_wolf(rows)[0])
    values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
    weight: Float64 = (vectors * np.sqrt(values.mean() / values)) @ vectors.T
    return weight, -mean @ weight
