"""Predicts a new model's vectors from the old ones, with a bound on a query's loss."""

from math import ceil
from typing import Any

import numpy as np

from xalign_models.errors import DataError
from xalign_models.index.auditing import NEIGHBOURS, Sample
from xalign_models.index.forensics import encode, require_made_by
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.models import migration
from xalign_models.models.recipe import Recipe
from xalign_models.ranking.ranks import nearest_others, normalise

TEXTS, LEAST = 2000, 100
"""Maximum and minimum number of the index's texts that the new model encodes."""
LEVEL, WANTED = 0.1, 0.3
"""Share of queries whose loss may exceed the bound, and the bound to reach by encoding some rows first."""


def conformal(losses: AnyFloats, level: float) -> float:
    """The split-conformal bound: the ceil((n + 1) (1 - level))-th smallest of n losses, or 1 if there are too few.

    For a new query that is exchangeable with these queries, on an index of the same size, the loss is at most the bound
    with probability 1 - level or more (Papadopoulos et al., 2002; Lei et al., 2018).
    """
    place = ceil((len(losses) + 1) * (1 - level))
    return float(np.sort(losses)[place - 1]) if place <= len(losses) else 1.0


def fit(sample: Sample, old: Recipe, new: Recipe, method: str) -> tuple[migration.Layers, dict[str, Any]]:
    """A map from a sample's vectors of different texts to a new model's, with the losses of a map fitted on half.

    The losses are measured on the other half, in an index of only that half. The map on all texts should lose less, but
    a larger index may lose more, because its rows are closer to each other. A query's loss is the share of a new
    index's ten nearest rows that are not among the ten nearest here.

    Returns:
        The map, and ``rows``, the number of rows of that half; ``table`` with the mean loss, and the bound that 90% of
        queries keep, by share of rows encoded again; ``share``, the smallest one with the bound :data:`WANTED`, or 1,
        whose choice the bound does not account for; and ``cut``, the length below which a prediction belongs to it.

    Raises:
        DataError: The index has fewer than 100 different texts.
        ModelError: The vectors are not from the old model.
    """
    listed = [str(text) for text in sample.rows.texts or ()]
    places = np.sort(np.unique(listed, return_index=True)[1])  # a text in both halves would lose nothing
    rows, texts, codes = sample.rows.take(places), [listed[place] for place in places], sample.codes[places].tolist()
    if len(texts) < LEAST:
        raise DataError(f"A map between models needs {LEAST} different texts of the index; it has {len(texts)}.")
    stored, prompts = normalise(rows.vectors), new.role_prompts()
    require_made_by(old, sample.rows, sample.codes)
    queries, documents = (normalise(encode(new, texts, codes, prompt)) for prompt in (prompts[0], prompts[-1]))
    held = np.random.default_rng(0).permutation(len(texts)) % 2 == 1
    predicted = migration.apply(migration.fit_map(method, stored[~held], documents[~held]), stored[held])
    lengths, own = np.linalg.norm(predicted, axis=1), np.arange(held.sum())
    order, true = np.argsort(lengths), nearest_others(queries[held], documents[held], own, NEIGHBOURS)
    table = []
    for share in np.arange(0, 1, 0.05):
        pool, first = normalise(predicted), order[: round(share * len(order))]
        pool[first] = documents[held][first]
        near = nearest_others(queries[held], pool, own, NEIGHBOURS)
        losses = 1 - (true[:, :, None] == near[:, None]).any(axis=2).mean(axis=1)
        row = {"encoded again": share, "mean loss": float(losses.mean()), "bound": conformal(losses, LEVEL)}
        table.append({name: round(value, 3) for name, value in row.items()})
    share = next((row["encoded again"] for row in table if row["bound"] <= WANTED), 1.0)
    layers = migration.fit_map(method, stored, documents)
    lengths = np.linalg.norm(migration.apply(layers, stored), axis=1)
    cut = float(np.quantile(lengths, share) if 0 < share < 1 else share * np.finfo(np.float64).max)  # none, or all
    return layers, {"rows": int(held.sum()), "table": table, "share": share, "cut": cut}
