"""MiniVec2Vec: rotate each language onto the pivot by the shape of its space alone (Dar, 2025)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.configuration import AtLeastOne
from xalign_models.linalg.arrays import AnyFloats, Float32, Float64
from xalign_models.linalg.solvers import polar
from xalign_models.plugins import register
from xalign_models.ranking.ranks import normalise


@register.alignment
@dataclass(eq=False)
class MiniVec2Vec(UnpairedAlignment):
    """``y = (x - mu_l) W_l + mu_pivot``, W_l a rotation found without translations and without a shared start.

    As in the paper (arXiv 2510.02348): cluster centres of both spaces are anchors, matched by quadratic assignment of
    their similarities; each row is paired with the mean of the k rows whose similarities to the anchors are closest; a
    rotation is fitted on these pairs, and refined on the mean of the k nearest rows. The last step is a rotation again.

    Each language needs some thousands of rows, drawn from one distribution of content. In one multilingual encoder,
    two languages are close from the start, which this method ignores and ``seedless`` uses.

    Attributes:
        weights_: W (L, d, d); the pivot's is the identity.
        shifts_: mu_pivot - mu_l W_l, (L, d).
    """

    method = "minivec2vec"
    arrays = ("weights_", "shifts_")

    pivot: str = "eng-Latn"
    """The language whose space all others are rotated into."""
    clusters: AtLeastOne = 20
    """Anchors per run."""
    runs: AtLeastOne = 10
    """Runs of clustering and assignment, whose anchors are joined; the paper uses 30."""
    neighbours: AtLeastOne = 50
    """Number k of rows averaged into the partner of a row."""
    rounds: AtLeastOne = 50
    """Steps of refinement."""
    seed: int = 0
    """Random seed of clusters, assignments and samples."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        means = {language: x.mean(axis=0, dtype=np.float64) for language, x in matrices.items()}
        spaces = {language: normalise(x - means[language]) for language, x in matrices.items()}
        eye = np.eye(len(means[self.pivot]))
        weights = {
            language: eye if language == self.pivot else self._rotation(space, spaces[self.pivot])
            for language, space in spaces.items()
        }
        self.weights_ = np.stack([*weights.values()])
        self.shifts_ = np.stack([means[self.pivot] - means[language] @ weight for language, weight in weights.items()])

    def _rotation(self, x: Float32, y: Float32) -> Float64:
        random = np.random.default_rng(self.seed)
        anchors = [
            np.concatenate(side) for side in zip(*(self._anchors(x, y, random) for _ in range(self.runs)), strict=True)
        ]
        relations = [normalise(side @ normalise(centres).T) for side, centres in zip((x, y), anchors, strict=True)]
        weight: Float64 = np.asarray(polar(x.T @ self._paired(relations[0], relations[1], y)), np.float64)
        for _ in range(self.rounds):
            sample = x[random.permutation(len(x))[:1000]]
            step = polar(sample.T @ self._paired((sample @ weight).astype(np.float32), y, y))
            weight = 0.5 * weight + 0.5 * step
        return np.asarray(polar(weight), np.float64)

    def _anchors(self, x: Float32, y: Float32, random: np.random.Generator) -> tuple[Float64, Float64]:
        """Matched cluster centres of both spaces: the best of ten assignments from random starts."""
        from scipy.optimize import quadratic_assignment
        from sklearn.cluster import KMeans

        count = min(self.clusters, len(x), len(y))
        fits = [KMeans(count, n_init=3, random_state=int(random.integers(2**31))).fit(side) for side in (x, y)]
        centres = [fit.cluster_centers_.astype(np.float64) for fit in fits]
        grams = [(side - side.mean(axis=0)) @ (side - side.mean(axis=0)).T for side in centres]
        options = {"maximize": True, "rng": random}
        tries = [quadratic_assignment(*grams, method="2opt", options=options) for _ in range(10)]
        return centres[0], centres[1][max(tries, key=lambda result: result.fun).col_ind]

    def _paired(self, queries: Float32, keys: Float32, rows: Float32) -> Float32:
        """For each query, the mean of the rows of the k keys that are most similar to it."""
        import torch

        nearest = [
            torch.from_numpy(queries[start : start + 1024] @ keys.T).topk(min(self.neighbours, len(keys))).indices
            for start in range(0, len(queries), 1024)
        ]
        paired: Float32 = rows[torch.cat(nearest).numpy()].mean(axis=1)
        return paired
