"""Rows that come from another model, prompt or version: by their own distribution, or by encoding some texts again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xalign_models.linalg.arrays import Float32, Float64, Mask
from xalign_models.models.recipe import ROLES, Recipe
from xalign_models.ranking.ranks import normalise
from xalign_models.vectors.transfer import SAME

FOREIGN = 1.3
"""A cluster with less variance in the directions of the largest cluster, as a multiple of chance, is another model's.

Rows of one model share the directions of high variance, whatever their topics and languages: from 1.5 times chance
upwards was measured, and up to 1.2 times between two models.
"""
CLUSTERS, LEAST = 16, 200
"""Maximum number of clusters, and mean number of rows that a cluster must have."""
DIRECTIONS = 12
"""The dimension over the number of directions that are compared."""


def foreign(vectors: Float32, seed: int = 0) -> Mask:
    """(n,) the rows that another model made than most others, by clusters of the unit vectors (n, d)."""
    from sklearn.cluster import KMeans

    rows = normalise(vectors)
    count = min(CLUSTERS, max(2, len(rows) // LEAST))
    labels = KMeans(count, n_init=1, random_state=seed).fit_predict(rows)
    parts = [rows[labels == label] - rows[labels == label].mean(axis=0) for label in range(count)]
    top = max(1, rows.shape[1] // DIRECTIONS)
    directions = np.linalg.eigh((largest := max(parts, key=len)).T @ largest)[1][:, -top:]
    energy = [float(np.square(part @ directions).sum() / max(1e-12, float(np.square(part).sum()))) for part in parts]
    chosen = np.isin(labels, np.flatnonzero(np.array(energy) * rows.shape[1] / top < FOREIGN))
    return chosen if 2 * chosen.sum() <= len(chosen) else ~chosen


def encoded_again(
    recipe: Recipe, texts: Sequence[str], codes: Sequence[str], vectors: Float32
) -> tuple[list[str], Float64]:
    """Each row's most similar prompt of the model, "" if no vector of it is the stored one, and the cosine with it."""
    prompts = {recipe.backbone.prompts.get(name, ""): name for name in reversed(ROLES)}
    stored, best = normalise(vectors), np.full(len(texts), -1.0)
    names = np.full(len(texts), "", object)
    for prompt, name in prompts.items():
        again = np.zeros_like(stored)
        for code in {*codes}:
            rows = [place for place, spoken in enumerate(codes) if spoken == code]
            again[rows] = normalise(recipe.encode([texts[row] for row in rows], code, prompt=prompt))
        cosines = (again * stored).sum(axis=1)
        names[cosines > best], best = name, np.maximum(best, cosines)
    names[best < SAME] = ""
    return names.tolist(), best


def summary(names: Sequence[str], cosines: Float64) -> list[dict[str, Any]]:
    """Number of rows by prompt, or of none of the model's vectors, with the cosines' median and minimum."""
    rows = []
    for name in dict.fromkeys(names):
        chosen = cosines[[other == name for other in names]]
        rows.append({"prompt": name or "none: another model or version", "rows": len(chosen),
                     "median cosine": round(float(np.median(chosen)), 4), "least": round(float(chosen.min()), 4)})  # fmt: skip
    return rows
