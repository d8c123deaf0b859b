"""``xalign index migrate``: predicts a new model's vectors from the old ones, and bounds what a query loses by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import DataError, ModelError
from xalign_models.index.auditing import Sample
from xalign_models.index.forensics import encoded_again
from xalign_models.linalg.arrays import AnyFloats, Float32, Float64
from xalign_models.models import migration
from xalign_models.models.recipe import Recipe
from xalign_models.ranking.ranks import normalise, target_counts

TEXTS, LEAST = 2000, 100
"""Number of the index's texts that the new model encodes, half of them to fit on, and the minimum."""
CHECKED = 32
"""Number of texts that the old model encodes, to refuse an index of another one."""
K = 10
SHARES = np.arange(0, 1, 0.05)


@dataclass(frozen=True)
class Migration:
    """A map between models, and the losses of held-out queries.

    A query's loss is the share of the ten rows nearest in a new index that are not among the ten nearest here.

    Attributes:
        layers: The map, for :func:`xalign_models.models.migration.apply`.
        cut: Rows whose prediction is shorter than this are to be encoded first.
        table: By share of rows encoded again, the mean loss, and the bound that a new query's loss keeps.
        share: The smallest share whose bound is at most the wanted one; 1 if none is.
    """

    layers: migration.Layers
    cut: float
    table: list[dict[str, float]]
    share: float


def conformal(losses: AnyFloats, level: float) -> float:
    """The split-conformal bound: the ceil((n + 1) (1 - level))-th smallest of n losses, or 1 if there are too few.

    The loss of a new query, exchangeable with those, is at most the bound with probability 1 - level or more
    (Papadopoulos et al., 2002; Lei et al., 2018).
    """
    place = ceil((len(losses) + 1) * (1 - level))
    return float(np.sort(losses)[place - 1]) if place <= len(losses) else 1.0


def fit(sample: Sample, old: Recipe, new: Recipe, method: str, level: float, wanted: float) -> Migration:
    """Fit a map on half of a sample's texts, and measure on the other half.

    Args:
        sample: Rows of the index, with texts.
        old: The model of the index.
        new: The model to move to.
        method: One of :data:`xalign_models.models.migration.MAPS`.
        level: Share of queries whose loss may exceed the bound.
        wanted: Bound that the rows to encode first should reach.

    Raises:
        DataError: The index has fewer than 100 texts.
        ModelError: The vectors are not the old model's.
    """
    texts = sample.rows.texts
    if not texts or len(texts) < LEAST:
        raise DataError(f"A map between models needs {LEAST} texts of the index; it has {len(texts or ())}.")
    codes, listed = sample.codes.tolist(), [str(text) for text in texts]
    _, cosines = encoded_again(old, listed[:CHECKED], codes[:CHECKED], sample.vectors[:CHECKED])
    if np.median(cosines) < 0.99:
        raise ModelError(f"The index is not {old.spec.name}'s: the median cosine is {np.median(cosines):.3f}.")
    queries, documents = (
        _encoded(new, listed, codes, prompt) for prompt in (new.role_prompts()[0], new.role_prompts()[-1])
    )
    held = np.random.default_rng(0).permutation(len(listed)) % 2 == 1
    layers = migration.fit_map(method, sample.vectors[~held], documents[~held])
    predicted = migration.apply(layers, normalise(sample.vectors[held]))
    lengths = np.linalg.norm(predicted, axis=1)
    rows, true, asked = normalise(predicted), normalise(documents[held]), normalise(queries[held])
    order, best = np.argsort(lengths), _nearest(asked, true)
    table, share, cut = [], 1.0, float(lengths.max())
    for part in SHARES:
        first = order[: round(part * len(order))]
        mixed = rows.copy()
        mixed[first] = true[first]
        near = _nearest(asked, mixed)
        losses = 1 - (best[:, :, None] == near[:, None]).any(axis=2).mean(axis=1)
        bound = conformal(losses, level)
        table.append(
            {
                "encoded again": round(float(part), 2),
                "mean loss": round(float(losses.mean()), 3),
                "bound": round(bound, 3),
            }
        )
        if bound <= wanted and share == 1.0:
            share, cut = float(part), float(np.quantile(lengths, part))
    return Migration(layers, cut, table, share)


def _encoded(recipe: Recipe, texts: Sequence[str], codes: Sequence[str], prompt: str) -> Float32:
    vectors: list[Any] = [None] * len(texts)
    for code in dict.fromkeys(codes):
        places = [place for place, spoken in enumerate(codes) if spoken == code]
        for place, vector in zip(places, recipe.encode([texts[p] for p in places], code, prompt=prompt), strict=True):
            vectors[place] = vector
    return np.stack(vectors)


def _nearest(queries: Float32, rows: Float32) -> npt.NDArray[np.int64]:
    """The ten nearest other rows (n, 10) of each text."""
    best = np.empty((len(queries), K), np.int64)

    def without_itself(scores: AnyFloats, part: slice) -> AnyFloats:
        scores[np.arange(len(scores)), np.arange(part.start, part.stop)] = -np.inf
        return scores

    target_counts(queries, rows, np.empty((len(queries), 0), np.int64), best, without_itself)
    return best
