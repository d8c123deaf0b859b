"""AffineMap: an unconstrained linear map with offset between each language and the pivot (Vasilyev et al., 2023)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from xalign_models.alignments.base import Between
from xalign_models.alignments.pivot import PivotAlignment
from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.configuration import Count, NonNegative
from xalign_models.device import pick_device
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.linalg.solvers import affine_distance, affine_lsq
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class AffineMap(PivotAlignment):
    """``y = x W_l + b_l``: ``e~ = A e + b`` (eq. 4) of the paper on linear cross-lingual maps, in row vectors: A = W^T.

    Examples:
        >>> import numpy as np
        >>> from xalign_models import AffineMap
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = AffineMap(pivot="eng-Latn").fit(vectors)
        >>> alignment.transform(vectors["deu-Latn"], "de").shape
        (100, 8)
    """

    method = "affine"
    by_language = True
    version = 2

    pivot: str = "eng-Latn"
    """Language at one end of every map."""
    direction: Literal["to_pivot", "from_pivot"] = "to_pivot"
    """``to_pivot`` maps language l onto the pivot: for use after an encoder. ``from_pivot`` maps the pivot onto l, the
    paper's direction: ``transform(x, l)`` takes embeddings of the *pivot* and maps them into the space of l."""
    loss: Literal["lsq", "distance"] = "lsq"
    """``lsq``: mean squared distance, in closed form. ``distance``: mean unsquared distance, by gradient descent."""
    ridge: NonNegative | None = None
    """For lsq: weight of the penalty, in units of the mean variance. None chooses it by the leave-one-out error; 0 is
    plain least squares, the paper's."""
    shrink_to: Literal["identity", "zero"] = "identity"
    """For lsq: the matrix that the penalty shrinks W_l towards. ``identity`` preserves an aligned backbone."""
    validation: Between = 0.1
    """For distance: share of the pairs held out for early stopping."""
    seed: Count = 0
    """For distance: random seed of the held-out split."""
    device: str = "cpu"
    """For distance: torch device of the computation."""

    @property
    def shrunk(self) -> bool:
        """Whether the map is shrunk to the identity, by the ridge or as the start of the distance fit."""
        return self.loss == "distance" or (self.ridge != 0 and self.shrink_to == "identity")

    def _solve(self, x: AnyFloats, pivot: AnyFloats) -> tuple[Float64, Float64]:
        source, target = (x, pivot) if self.direction == "to_pivot" else (pivot, x)
        if self.loss == "lsq":
            start = np.eye(x.shape[1]) if self.shrink_to == "identity" else np.zeros((x.shape[1],) * 2)
            residual = target - source.astype(np.float64) @ start
            solved = (
                ridge_by_leave_one_out(source, residual)
                if self.ridge is None
                else affine_lsq(source, residual, self.ridge)
            )
            return solved[0] + start, solved[1]
        device = pick_device(self.device)  # checked here: a map fitted on a GPU can be loaded without one
        return affine_distance(source, target, validation=self.validation, seed=self.seed, device=device)
