"""Residual: a small network between each language and the pivot (Drift-Adapter, Vejendla, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.alignments.base import Between
from xalign_models.alignments.pivot import PivotAlignment
from xalign_models.configuration import AtLeastOne, Count
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register

if TYPE_CHECKING:
    from xalign_models.alignments.networks import RectifiedAligned


class Network:
    """``y = x + relu(x A + a) B``: the map of alignments with the arrays ``inner_``, ``bias_`` and ``outer_``."""

    inner_: Float64
    bias_: Float64
    outer_: Float64

    def factors(self) -> dict[str, Float64]:
        """A (L, d, h), a (L, h) and B (L, h, d)."""
        return {"inner": self.inner_, "bias": self.bias_, "outer": self.outer_}

    @staticmethod
    def apply(x: Any, inner: Any, bias: Any, outer: Any) -> Any:
        """Map rows (n, d) of one language."""
        return x + np.maximum(x @ inner + bias, 0) @ outer

    def module(self) -> RectifiedAligned:
        """The network as a torch module."""
        from xalign_models.alignments.networks import RectifiedAligned

        return RectifiedAligned.of(self)  # type: ignore[arg-type]  # an alignment


@register.alignment
@dataclass(eq=False)
class Residual(Network, PivotAlignment):  # type: ignore[misc]  # other factors
    """``y = x + relu(x A_l + a_l) B_l``, trained to minimise the mean squared distance from the translations.

    Drift-Adapter's residual network (arXiv 2509.23471) uses a GELU, ours a ReLU. Training starts at the difference of
    the means; the step with the lowest error on held-out pairs gives the map.
    """

    method = "residual"
    version = 2
    arrays = ("inner_", "bias_", "outer_")
    by_language = True
    shrunk = True  # training starts at a map near the identity

    pivot: str = "eng-Latn"
    """The language that all others are mapped onto."""
    hidden: AtLeastOne = 256
    """Number of hidden units; the paper's default."""
    steps: AtLeastOne = 200
    """Largest number of steps of Adam, each on all pairs."""
    validation: Between = 0.1
    """Share of the pairs held out for early stopping."""
    seed: Count = 0
    """Random seed of the held-out share and the first weights."""

    def _solve(self, x: AnyFloats, pivot: AnyFloats) -> tuple[Float64, ...]:
        from xalign_models.alignments.networks import residual

        return residual(x, pivot, hidden=self.hidden, steps=self.steps, validation=self.validation, seed=self.seed)

    def _identity(self, dim: int) -> tuple[Float64, ...]:
        width = self.hidden + 1
        return np.zeros((dim, width)), np.zeros(width), np.zeros((width, dim))
