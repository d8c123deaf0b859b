"""A method of your own, in one file: whitening.

It moves every language's mean to the origin and scales the vectors to the same variance in all directions (Su et al.,
2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval", here with one mean a language).
Try it in this file's folder:

    xalign fit whitening --plugin whitening.py --backbone multilingual-e5-small-q4 --corpus gettext:fit -o whitened
    xalign run --plugin whitening.py -m whitened -m whitening__multilingual-e5-small-q4__gettext

A subclass of ``UnpairedAlignment`` needs a name, its hyperparameters as dataclass fields, ``_fit``, and ``factors``,
which returns its affine maps. xalign then fits, saves, loads, lists and scores it like a built-in method. A saved model
does not need this file, because one module applies all affine maps. A method that is fitted on translations derives
from ``PivotAlignment`` instead. For a method that is not affine, see ``mlp_head.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models import register
from xalign_models.alignments.base import AnyFloats, Array, UnpairedAlignment
from xalign_models.errors import AlignmentError


@register.alignment
@dataclass(eq=False)
class Whitening(UnpairedAlignment):
    """``y = (x - mu_l) W`` with ``W = S^(-1/2)``, S the covariance of all languages' centred rows.

    Attributes:
        means_: mu, (L, d), in the order of ``languages_``.
        weight_: W (d, d), symmetric.
    """

    method = "whitening"
    arrays = ("means_", "weight_")  # saved with the model, and hashed for the fit's fingerprint

    shrinkage: float = 0.1
    """Share of the mean variance in S, between 0 and 1; it makes W more stable when there are few rows."""

    def __post_init__(self) -> None:
        """Check the field."""
        if not 0 <= self.shrinkage <= 1:
            raise AlignmentError(f"shrinkage={self.shrinkage}; it must be between 0 and 1.")

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        self.means_ = np.stack([x.mean(axis=0, dtype=np.float64) for x in matrices.values()])
        centred = np.concatenate([x - mean for x, mean in zip(matrices.values(), self.means_, strict=True)])
        covariance = centred.T @ centred / len(centred)
        mean_variance = np.trace(covariance) / len(covariance)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * mean_variance * np.eye(len(covariance))
        variances, directions = np.linalg.eigh(covariance)
        if variances[0] <= 0:
            raise AlignmentError("whitening: the rows do not vary in some direction; use more rows or more shrinkage.")
        self.weight_ = directions / np.sqrt(variances) @ directions.T

    def factors(self) -> dict[str, Array]:
        """W, the same for every language, and the shifts -mu_l W."""
        return {"weight": np.repeat(self.weight_[None], len(self.means_), axis=0), "shift": -self.means_ @ self.weight_}
