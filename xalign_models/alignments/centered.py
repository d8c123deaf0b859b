"""Centered: subtract each language's mean."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class Centered(UnpairedAlignment):
    """``y = x - mu_l``, with mu_l the mean of language l on the fit data.

    Attributes:
        means_: (L, d).

    Examples:
        >>> import numpy as np
        >>> from xalign_models import Centered
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = Centered().fit(vectors)
        >>> alignment.transform(vectors["deu-Latn"], "de").shape
        (100, 8)
    """

    method = "centered"
    arrays = ("means_",)
    by_language = True

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        self.means_ = np.stack([x.mean(axis=0, dtype=np.float64) for x in matrices.values()])

    def factors(self) -> dict[str, Float64]:
        """The shifts -mu_l."""
        return {"shift": -self.means_}
