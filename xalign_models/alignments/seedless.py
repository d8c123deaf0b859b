"""Seedless: rotate each language onto the pivot by mutual nearest neighbours, without translations."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.alignments.shrinkage import shrunk_procrustes
from xalign_models.configuration import AtLeastOne, NonNegative
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.plugins import register
from xalign_models.ranking.neighbours import mutual_neighbours
from xalign_models.ranking.ranks import normalise


@register.alignment
@dataclass(eq=False)
class Seedless(UnpairedAlignment):
    """``y = x W_l``: repeatedly fits W_l on pairs of mutual nearest neighbours, treated as translations.

    The first pairs come from the unmapped embeddings, so the backbone or a preceding alignment
    (``centered+seedless``) must bring the languages close to each other. Rows need not be parallel.

    Attributes:
        weights_: W (L, d, d); the pivot's is the identity.
        pairs_: Pairs that the last W_l was fitted on, (L,).
    """

    method = "seedless"
    arrays = ("weights_", "pairs_")

    pivot: str = "eng-Latn"
    """The language whose space all others are rotated into."""
    rounds: AtLeastOne = 5
    """Maximum number of iterations; it stops early when the pairs no longer change."""
    shrink: NonNegative | None = None
    """Weight of the identity in the fit, as in Procrustes; None chooses it on held-out pairs."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        target = normalise(matrices[self.pivot])
        fits = [
            (np.eye(target.shape[1]), len(target)) if language == self.pivot else self._rotation(language, rows, target)
            for language, rows in matrices.items()
        ]
        self.weights_ = np.stack([weight for weight, _ in fits])
        self.pairs_ = np.array([float(pairs) for _, pairs in fits])

    def _rotation(self, language: str, rows: AnyFloats, target: np.ndarray) -> tuple[Float64, int]:
        source, weight = normalise(rows), np.eye(target.shape[1])
        previous: tuple[bytes, ...] = ()
        pairs = 0
        for _ in range(self.rounds):
            neighbours = mutual_neighbours(normalise(source @ weight), target)
            if (current := tuple(side.tobytes() for side in neighbours)) == previous or not len(neighbours[0]):
                break
            previous, pairs = current, len(neighbours[0])
            weight = shrunk_procrustes(source[neighbours[0]], target[neighbours[1]], self.shrink)
        if not pairs:
            warnings.warn(
                f"seedless: {language} and {self.pivot} have no mutual nearest neighbours; {language} is not rotated.",
                stacklevel=5,
            )
        return weight, pairs
