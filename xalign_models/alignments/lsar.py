"""LSAR: remove the low-rank language-specific subspace (Xie et al., 2022)."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.alignments.groups import language_of
from xalign_models.configuration import Count
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import lsar_subspace
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class LSAR(UnpairedAlignment):
    """``y = x (I - C C^T)``, C a basis of the subspace of the language means; the same for every language.

    mu is never subtracted and embeddings are neither centred nor normalised, as in the paper. With several prompts, a
    language's mean is the average of its means under each: the offset between prompts is the same for all languages.

    Attributes:
        mu_: Language-agnostic part of the means (d,), orthogonal to C.
        basis_: C (d, r), orthonormal columns.
        singular_values_: All singular values of the centred means, descending.

    Examples:
        >>> import numpy as np
        >>> from xalign_models import LSAR
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = LSAR().fit(vectors)
        >>> alignment.transform(vectors["deu-Latn"], "de").shape
        (100, 8)
        >>> alignment.basis_.shape
        (8, 1)
    """

    method = "lsar"
    arrays = ("mu_", "basis_", "singular_values_")
    language_dependent = False
    joint = True

    rank: Count | None = None
    """Dimension of the subspace; None is the number of fitted languages less one."""

    @property
    def rank_(self) -> int:
        """Effective rank r: at most the numerical rank of the centred means."""
        return int(self.basis_.shape[1])

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        groups: dict[str, list[Float64]] = {}  # the means of a language under each prompt
        for key, x in matrices.items():
            groups.setdefault(language_of(key), []).append(x.mean(axis=0, dtype=np.float64))
        means = np.stack([np.mean(parts, axis=0) for parts in groups.values()])
        rank = len(means) - 1 if self.rank is None else self.rank
        noise = max(_rounding(x) for x in matrices.values())
        self.mu_, self.basis_, self.singular_values_ = lsar_subspace(means, rank, noise)
        if len(means) == 1 and self.rank is None:
            warnings.warn("lsar: one language has no subspace, so vectors stay as they are.", stacklevel=4)
        elif self.rank_ < rank:
            warnings.warn(
                f"lsar: rank {rank} cut to {self.rank_}, the numerical rank of {len(means)} centred means.",
                stacklevel=4,
            )

    def factors(self) -> dict[str, Float64]:
        """The basis C."""
        return {"basis": self.basis_[None]}


def _rounding(x: AnyFloats) -> float:
    """Largest rounding error of the mean of rows (n, d): equal means, as after ``centered``, differ by less."""
    units = np.finfo(x.dtype).eps + 4 * np.sqrt(max(x.shape)) * np.finfo(np.float64).eps  # of rows and sums
    return float(units * np.linalg.norm(x, axis=1).max())
