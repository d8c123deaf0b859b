"""``xalign index audit``: tables of what an index holds, how its languages mix, and what each method would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xalign_models.errors import DataError
from xalign_models.index.base import Index, Rows
from xalign_models.index.forensics import foreign
from xalign_models.index.writing import languages_of, usable
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.ranks import normalise, target_counts

MOST = 100_000
"""Rows that are compared with each other; of a larger index every k-th."""
QUERIES, NEIGHBOURS = 1000, 10
"""Rows whose nearest neighbours are counted, and how many of them."""
PER_LANGUAGE = 300
"""Rows of a language whose scores with others' set the thresholds."""
Tables = dict[str, list[dict[str, Any]]]
"""Tables by title; the rows of a table have equal keys."""


@dataclass(frozen=True)
class Sample:
    """Rows with usable vectors, their canonical languages (n,), and facts about all rows of the index."""

    rows: Rows
    vectors: Float32
    codes: Any
    facts: dict[str, Any]


def gather(index: Index, lang: str | None = None, most: int = MOST) -> Sample:
    """Read all rows once, and keep at most ``most`` of those with a usable vector.

    Raises:
        DataError: There are no usable vectors.
    """
    step, total = -(-max(1, index.count()) // most), 0
    kept: list[Rows] = []
    norms, hashes, texts = [], [], []
    facts = {"rows": 0, "dimension": 0, "without a vector": 0, "not finite": 0, "zero": 0}
    for rows in index.read():
        good, finite = usable(rows.vectors), np.isfinite(rows.vectors).all(axis=1)
        missing = np.isnan(rows.vectors).all(axis=1)
        facts["rows"] += len(good)
        facts["dimension"] = facts["dimension"] or rows.vectors.shape[1]
        facts["without a vector"] += int(missing.sum())
        facts["not finite"] += int((~finite & ~missing).sum())
        facts["zero"] += int((finite & ~good).sum())
        norms.append(np.linalg.norm(rows.vectors[good].astype(np.float64), axis=1))
        hashes += [hash(row.tobytes()) for row in rows.vectors[good]]
        texts += [hash(rows.texts[place]) for place in np.flatnonzero(good)] if rows.texts else []
        chosen = np.flatnonzero(good)
        kept.append(rows.take(chosen[(total + np.arange(len(chosen))) % step == 0]))
        total += len(chosen)
    if not total:
        raise DataError(f"{index.source} has no usable vectors.")
    lengths = np.concatenate(norms)
    facts["repeated vectors"] = total - len({*hashes})
    if texts:
        facts["repeated texts"] = total - len({*texts})
        facts["texts with several vectors"] = len({*zip(texts, hashes, strict=True)}) - len({*texts})
    for name, value in zip(("least", "median", "greatest"), np.quantile(lengths, [0, 0.5, 1]), strict=True):
        facts[f"{name} norm"] = round(float(value), 4)
    codes = np.array([code for rows in kept for code in languages_of(rows, lang)])
    sides = [[value for rows in kept for value in getattr(rows, side) or ()] for side in ("ids", "texts")]
    vectors = np.concatenate([rows.vectors for rows in kept]).astype(np.float32)
    return Sample(Rows(sides[0], vectors, sides[1] or None), vectors, codes, facts)


def contents(sample: Sample, seed: int = 0) -> Tables:
    """Tables of the facts, of languages and hubs among nearest neighbours, of thresholds, and of foreign rows."""
    unit, codes = normalise(sample.vectors), sample.codes
    rng = np.random.default_rng(seed)
    asked = np.sort(rng.choice(len(unit), min(QUERIES, len(unit)), replace=False))
    nearest = np.empty((len(asked), min(NEIGHBOURS, len(unit) - 1)), np.int64)

    def without_itself(scores: Any, rows: slice) -> Any:
        scores[np.arange(len(scores)), asked[rows]] = -np.inf
        return scores

    if nearest.size:
        target_counts(unit[asked], unit, np.empty((len(asked), 0), np.int64), nearest, without_itself)
    languages = []
    for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
        share, near = count / len(codes), nearest[codes[asked] == code]
        own = float((codes[near] == code).mean()) if near.size else None
        languages.append({"language": str(code), "rows": int(count), "share": round(share, 4),
                          "same among the nearest": None if own is None else round(own, 4),
                          "lift": None if own is None else round(own / share, 2)})  # fmt: skip
    times = np.bincount(nearest.ravel(), minlength=len(unit))
    hubs = [
        {"id": str(sample.rows.ids[row]), "language": str(codes[row]), "times": int(times[row]),
         "text": (sample.rows.texts[row] or "")[:60] if sample.rows.texts else ""}
        for row in np.argsort(-times, kind="stable")[:NEIGHBOURS]
        if times[row] > 1
    ]  # fmt: skip
    strange = np.flatnonzero(foreign(sample.vectors)) if len(unit) > NEIGHBOURS else np.empty(0, np.int64)
    return {
        "Contents": [{"fact": name, "value": value} for name, value in sample.facts.items()],
        f"Languages of the {NEIGHBOURS} nearest of {len(asked)} rows": languages,
        "Rows that are nearest most often": hubs,
        f"Scores of unrelated rows by pair of languages, from up to {PER_LANGUAGE} rows each": thresholds(unit, codes, rng),
        "Rows that look like another model's": [
            {"rows": len(strange), "share": round(len(strange) / len(unit), 4),
             "ids of the first": ", ".join(str(sample.rows.ids[row]) for row in strange[:5])}
        ] if len(strange) else [],
    }  # fmt: skip


def thresholds(unit: Float32, codes: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Median, spread (1.4826 times the median deviation) and 99th percentile of the scores of each pair of languages.

    Few rows of an index answer each other, so nearly all scores are of unrelated rows: the 99th percentile is a
    threshold at about 1% false positives, and needs no label.
    """
    parts = {
        str(code): unit[rng.permutation(np.flatnonzero(codes == code))[:PER_LANGUAGE]]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True)
        if count >= NEIGHBOURS
    }
    table = []
    for asked, queries in parts.items():
        for written, documents in parts.items():
            scores = queries @ documents.T
            scores = scores[~np.eye(len(scores), dtype=bool)] if asked == written else scores
            median, bound = np.quantile(scores, [0.5, 0.99])
            spread = 1.4826 * float(np.median(np.abs(scores - median)))
            table.append({"query": asked, "document": written, "median": round(float(median), 4),
                          "spread": round(spread, 4), "at 1% false positives": round(float(bound), 4)})  # fmt: skip
    return table
