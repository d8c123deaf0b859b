"""LIR: remove each language's leading directions (Yang et al., 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.configuration import Count
from xalign_models.errors import AlignmentError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import lir_directions
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class LIR(UnpairedAlignment):
    """``y = x (I - C_l C_l^T)``, C_l the top-k right singular directions of language l's uncentred embeddings.

    Attributes:
        directions_: C (L, d, k), by falling singular value.

    Examples:
        >>> import numpy as np
        >>> from xalign_models import LIR
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = LIR(k=2).fit(vectors)
        >>> alignment.transform(vectors["deu-Latn"], "de").shape
        (100, 8)
        >>> alignment.directions_.shape
        (2, 8, 2)
    """

    method = "lir"
    arrays = ("directions_",)
    by_language = True

    k: Count = 1
    """Directions removed per language; the LSAR paper's rows are 1 and 15."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        for language, x in matrices.items():
            if self.k > min(x.shape):
                raise AlignmentError(f"{language}: k={self.k} directions from a matrix {x.shape}; lower k or add rows.")
        self.directions_ = np.stack([lir_directions(x, self.k) for x in matrices.values()])

    def factors(self) -> dict[str, Float64]:
        """The bases C_l."""
        return {"basis": self.directions_}
