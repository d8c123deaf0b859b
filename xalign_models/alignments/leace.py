"""LEACE: remove everything a linear classifier could use to tell the language (Belrose et al., 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import Fraction, UnpairedAlignment
from xalign_models.alignments.groups import places_by_prompt
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.plugins import register

_NOISE = 1e-10  # singular values below this share of the largest are rounding


@register.alignment
@dataclass(eq=False)
class LEACE(UnpairedAlignment):
    """``y = x - (x - mu) S^(-1/2) U U^T S^(1/2)``: equal means for all languages, with the least change of x.

    The paper's Theorem 4.3 (arXiv 2306.03819) for labels that are languages: S is the covariance of all embeddings,
    each language weighing the same, mu the mean of the language means mu_l, and U an orthonormal basis of all
    (mu_l - mu) S^(-1/2). The change is least in the norm of S^(-1). The means become equal for every positive definite
    S, so S may be shrunk when rows are few. With several prompts, mu_l is compared with the mean of its own prompt,
    because the offset between prompts does not depend on the language.

    Attributes:
        weights_: One matrix for all languages, (1, d, d).
        shifts_: (1, d).
    """

    method = "leace"
    arrays = ("weights_", "shifts_")
    language_dependent = False
    joint = True
    version = 2

    shrink: Fraction | None = None
    """Weight of the multiple of the identity in S, from 0 to 1; None is Ledoit and Wolf's estimate."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        from sklearn.covariance import ledoit_wolf_shrinkage

        means = np.stack([x.mean(axis=0, dtype=np.float64) for x in matrices.values()])
        mean, dim = means.mean(axis=0), means.shape[1]
        centred = [x - mean for x in matrices.values()]
        covariance = sum((x.T @ x / len(x) for x in centred), np.zeros((dim, dim))) / len(centred)
        shrink = self.shrink
        if shrink is None:
            shrink = ledoit_wolf_shrinkage(np.concatenate(centred), assume_centered=True)
        values, vectors = np.linalg.eigh(covariance)
        values = (1 - shrink) * values + shrink * values.mean()
        values = np.sqrt(np.maximum(values, np.finfo(np.float64).eps * max(values[-1], np.finfo(np.float64).tiny)))
        offsets = [means[places] - means[places].mean(axis=0) for places in places_by_prompt(matrices)]
        white = np.concatenate(offsets) @ (vectors / values)  # in the eigenvectors' coordinates
        _, singular, directions = np.linalg.svd(white, full_matrices=False)
        basis = directions[singular > _NOISE * max(singular[0], 1)].T
        removed = (vectors / values) @ basis @ (basis.T @ (vectors * values).T)
        self.weights_, self.shifts_ = (np.eye(dim) - removed)[None], (mean @ removed)[None]
