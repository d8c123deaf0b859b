"""Procrustes: rotate each language onto the pivot (representational isomorphism)."""

from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.pivot import PivotAlignment
from xalign_models.alignments.shrinkage import shrunk_procrustes
from xalign_models.configuration import NonNegative
from xalign_models.errors import AlignmentError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class Procrustes(PivotAlignment):
    """``y = x W_l``, W_l the orthogonal matrix minimising ||X_l W - X_pivot||_F on translations.

    Examples:
        >>> import numpy as np
        >>> from xalign_models import Procrustes
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = Procrustes(pivot="eng-Latn").fit(vectors)
        >>> alignment.transform(vectors["deu-Latn"], "de").shape
        (100, 8)
        >>> alignment.weights_.shape  # the pivot's is the identity
        (2, 8, 8)
    """

    method = "procrustes"
    by_language = True

    pivot: str = "eng-Latn"
    """The language whose space all others are rotated into."""
    normalize: bool = True
    """Fit W on unit-length rows (the map itself applies to embeddings of any length)."""
    center: bool = False
    """Fit W on centred rows, and add the shift that takes the language's mean onto the pivot's."""
    shrink: NonNegative | None = 0.0
    """Weight of the identity: W is the rotation nearest X^T Y + lambda I, which regularises it if pairs are few. In
    units of ||X||_F ||Y||_F / d; None chooses it on held-out pairs."""

    @property
    def shrunk(self) -> bool:
        """Whether the identity has a weight."""
        return self.shrink != 0

    def _solve(self, x: AnyFloats, pivot: AnyFloats) -> tuple[Float64, Float64]:
        weight = shrunk_procrustes(self._prepared(x), self._prepared(pivot), self.shrink)
        if not self.center:
            return weight, np.zeros(x.shape[1])
        return weight, pivot.mean(axis=0, dtype=np.float64) - x.mean(axis=0, dtype=np.float64) @ weight

    def _prepared(self, rows: AnyFloats) -> Float64:
        prepared: Float64 = rows.astype(np.float64)
        if self.normalize:
            norms = np.linalg.norm(prepared, axis=1, keepdims=True)
            if not norms.all():
                raise AlignmentError(
                    f"row {np.argmin(norms)} is zero, so it has no direction; drop it or set normalize=False."
                )
            prepared = prepared / norms
        return prepared - prepared.mean(axis=0) if self.center else prepared
