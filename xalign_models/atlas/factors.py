"""Factor analysis of scores on the logit scale, with most of the table missing.

A model m has r factors ``z_m ~ N(0, I)``, and its score on cell c is ``logit s_mc = mu_c + w_c z_m + e``, with noise e
of variance ``psi_c``. EM (Rubin and Thayer 1982, EM algorithms for ML factor analysis) fits mu, w and psi to the
observed cells, with a weak normal prior on w and a weak inverse-gamma prior on psi.
A cell is a language of a column in one pairing: alone, with English, or with other languages.
"""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from xalign_models.atlas.table import Column
from xalign_models.linalg.arrays import Float64

LEAST, MOST = 0.01, 0.995
"""Scores are clipped to this range before the logit."""
PAIRINGS = ((0,), (1, 2), (3, 4))
"""Kinds of a column's means that form one cell: alone, with English, with others."""
SAME_TEXT = {
    "STS22.v2": "STS22",
    "BUCC.v2": "BUCC",
    "IN22ConvBitextMining": "IN22GenBitextMining",
    "SIB200ClusteringS2S": "SIB200Classification",
}
"""Tasks whose text is that of another one; a test that holds one out holds both out."""
FEWEST = 8
"""Models that a cell needs."""
RANK, ROUNDS, PULL, NOISE = 12, 20, 5.0, 0.02
"""Number of factors, rounds of EM, precision of the prior on loadings, and variance that the prior on noise expects."""
OTHER = 0.03
"""Weight of cells of another kind of task than the one that is predicted."""
_STRENGTH = 5.0  # observations that the prior on noise counts for


class Cell(NamedTuple):
    """A column's task, kind and label, a canonical code, and the index of a pairing."""

    task: str
    kind: str
    column: str
    language: str
    pairing: int

    @property
    def text(self) -> str:
        """The task whose text the cell has; see :data:`SAME_TEXT`."""
        return SAME_TEXT.get(self.task, self.task)


class Factors(NamedTuple):
    """Means (cells,), loadings (cells, r) and variances of the noise (cells,), all of logits."""

    mean: Float64
    loadings: Float64
    noise: Float64


class Posterior(NamedTuple):
    """The factors of models given their observed cells: means (models, r) and covariances (models, r, r)."""

    mean: Float64
    covariance: Float64

    def predict(self, factors: Factors) -> tuple[Float64, Float64]:
        """Logits (models, cells) and their standard errors, without the noise of a cell."""
        loadings = factors.loadings
        variance = self.covariance.reshape(len(self.mean), -1) @ _outer(loadings, loadings).T
        return factors.mean + self.mean @ loadings.T, np.sqrt(np.maximum(variance, 0))


def logit(score: Float64) -> Float64:
    """The logit of scores, after clipping; NaN stays."""
    clipped = np.clip(score, LEAST, MOST)
    return np.asarray(np.log(clipped / (1 - clipped)))


def score_of(logits: Float64) -> Float64:
    """The inverse of :func:`logit`."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def cells_of(columns: Sequence[Column], models: Sequence[str], fewest: int = FEWEST) -> tuple[list[Cell], Float64]:
    """The cells with at least ``fewest`` of the models, and scores (models, cells), NaN where a model lacks a cell."""
    order = {model: row for row, model in enumerate(models)}
    cells, found = [], []
    for column in columns:
        there = [model in order for model in column.models]
        rows, of_models = [order[model] for model in compress(column.models, there)], column.scores[there]
        for place, language in enumerate(column.languages):
            for pairing, kinds in enumerate(PAIRINGS):
                used = [kind for kind in kinds if column.counts[place, kind] > 0]
                means = of_models[:, place, used].mean(axis=1) if used else np.zeros(0)
                if used and np.isfinite(means).sum() >= fewest:
                    cells.append(Cell(column.task, column.kind, column.label, language, pairing))
                    found.append((rows, means))
    scores = np.full((len(models), len(cells)), np.nan)
    for number, (rows, means) in enumerate(found):
        scores[rows, number] = means
    return cells, scores


def fit(logits: Float64, rank: int = RANK, seed: int = 0) -> Factors:
    """Fit the factors to logits (models, cells), NaN where a model lacks a cell.

    EM starts from a general factor, on which all cells load alike, and small random loadings on the others. A start at
    the principal components, with zeros for missing cells, finds who was scored on what instead of who is good.
    """
    observed = np.isfinite(logits)
    counts = np.maximum(observed.sum(axis=0), 1)
    values = np.where(observed, logits, 0.0)
    mean = values.sum(axis=0) / counts
    loadings = np.random.default_rng(seed).normal(0, 0.1, (len(mean), rank))
    loadings[:, 0] = 0.7
    factors = Factors(mean, loadings, np.full(len(mean), 0.1))
    prior = np.diag([PULL] * loadings.shape[1] + [1e-6])
    for _ in range(ROUNDS):
        posterior = infer(factors, logits)
        known = np.concatenate([posterior.mean, np.ones((len(logits), 1))], axis=1)
        moments = known[:, :, None] * known[:, None]
        moments[:, :-1, :-1] += posterior.covariance
        width = known.shape[1]
        squares = (observed.T.astype(np.float64) @ moments.reshape(len(logits), -1)).reshape(-1, width, width)
        products = values.T @ known
        solved = np.linalg.solve(squares + prior * factors.noise[:, None, None], products[..., None])[..., 0]
        explained = 2 * (solved * products).sum(axis=1) - np.einsum("di,dij,dj->d", solved, squares, solved)
        noise = ((values**2).sum(axis=0) - explained + NOISE * _STRENGTH) / (counts + _STRENGTH)
        factors = Factors(solved[:, -1], solved[:, :-1], noise)
    return factors


def infer(factors: Factors, logits: Float64, weights: Float64 | None = None) -> Posterior:
    """The factors of models, from logits (models, cells); ``weights`` (cells,) divide the noise of cells."""
    observed = np.isfinite(logits) * (np.ones(logits.shape[1]) if weights is None else weights)
    scaled = factors.loadings / factors.noise[:, None]
    rank = scaled.shape[1]
    precision = (observed @ _outer(scaled, factors.loadings)).reshape(-1, rank, rank) + np.eye(rank)
    covariance: Float64 = np.asarray(np.linalg.inv(precision), np.float64)
    shares = (np.where(np.isfinite(logits), logits - factors.mean, 0.0) * observed) @ scaled
    return Posterior((covariance @ shares[..., None])[..., 0], covariance)


def _outer(left: Float64, right: Float64) -> Float64:
    return np.asarray((left[:, :, None] * right[:, None]).reshape(len(left), left.shape[1] * right.shape[1]))
