"""Shift: move each language by a share of its offset to the pivot (SHIFT, Jang et al., 2026)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import Fraction, UnpairedAlignment
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class Shift(UnpairedAlignment):
    """``y = x - a (mu_l - mu_pivot)``, with mu_l the mean of language l and a the strength; the pivot does not move.

    The paper (arXiv 2606.18801) uses a = 1 and translations as fit text, and maps only documents. On translations, the
    difference of the means equals the paper's mean difference of pairs.

    Attributes:
        offsets_: mu_l - mu_pivot, (L, d).
    """

    method = "shift"
    arrays = ("offsets_",)
    by_language = True

    pivot: str = "eng-Latn"
    """The language that all others are moved to."""
    strength: Fraction = 1.0
    """Share a of the offset to remove, from 0 to 1: a larger share helps across languages and costs within one."""
    index_only: bool = False
    """Map only documents and leave queries as they are, as in the paper. For queries in the pivot language, both give
    the same result."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        means = {language: x.mean(axis=0, dtype=np.float64) for language, x in matrices.items()}
        self.offsets_ = np.stack([mean - means[self.pivot] for mean in means.values()])

    def factors(self) -> dict[str, Float64]:
        """The shifts -a (mu_l - mu_pivot)."""
        return {"shift": -self.strength * self.offsets_}
