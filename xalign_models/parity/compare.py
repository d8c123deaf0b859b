"""Compares a model served in two ways: distance of the vectors, changed neighbours and the likely cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xalign_models.errors import ModelError
from xalign_models.linalg.arrays import Float64, Mask, unit
from xalign_models.parity.causes import Cause, Evidence, causes
from xalign_models.parity.served import Served

TOLERANCE = 1e-8
"""1 - cosine of equal vectors: float32 with another order of sums stays below, float16 does not."""
BUCKETS = (16, 64, 128, 256)
"""Maximum length in tokens of each bucket but the last."""
_MOST = 2_000_000
"""Number of similarities in memory."""


@dataclass(frozen=True)
class ParityRow:
    """Texts of one language and of similar length.

    Attributes:
        language: Canonical code.
        tokens: E.g. ``17-64``; characters without a tokenizer.
        texts: Number of texts.
        mean: Mean cosine.
        least: Least cosine.
        length: Mean length of the second's vectors over that of the first's.
        neighbours: Share of the texts whose nearest neighbour changes.
    """

    language: str
    tokens: str
    texts: int
    mean: float
    least: float
    length: float
    neighbours: float


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        same: Whether no vector differs.
        rows: Results by language and length.
        least: The least cosine.
        neighbours: Share of the texts whose nearest neighbour changes.
        causes: Likely causes, the most likely first.
    """

    same: bool
    rows: tuple[ParityRow, ...]
    least: float
    neighbours: float
    causes: tuple[Cause, ...]


def compare(a: Served, b: Served, texts: Mapping[str, Sequence[str]], tolerance: float = TOLERANCE) -> Parity:
    """Compare two ways to serve a model on texts by language; 1 - cosine up to ``tolerance`` counts as equal.

    Raises:
        ModelError: The vectors have different dimensions.
        XAlignError: A text cannot be encoded.
    """
    listed = [text for side in texts.values() for text in side]
    languages = [language for language, side in texts.items() for _ in side]
    first, second = a.vectors(listed, languages), b.vectors(listed, languages)
    if first.shape != second.shape:
        dimensions = f"{a.model} gives vectors of dimension {first.shape[1]}, and {b.model} of {second.shape[1]}"
        raise ModelError(f"{dimensions}; compare vectors of the same dimension.")
    lengths = (a if a.tokenizer is not None else b).lengths(listed)
    evidence = Evidence(listed, languages, lengths, first, second, float(np.sqrt(2 * tolerance)))
    likely = causes(a, b, evidence)
    cosines = 1 - evidence.distances**2 / 2
    changed = changed_neighbours(first, second, evidence.tolerance)
    ratios = np.linalg.norm(second, axis=1) / np.linalg.norm(first, axis=1)
    names, buckets = np.array(languages), np.searchsorted(BUCKETS, lengths)
    rows = tuple(
        ParityRow(
            language,
            _label(int(bucket)),
            int(chosen.sum()),
            float(cosines[chosen].mean()),
            float(cosines[chosen].min()),
            float(ratios[chosen].mean()),
            float(changed[chosen].mean()),
        )
        for language in texts
        for bucket in np.unique(buckets[names == language])
        if (chosen := (names == language) & (buckets == bucket)).any()
    )
    return Parity(not likely, rows, float(cosines.min()), float(changed.mean()), tuple(likely))


def changed_neighbours(a: Float64, b: Float64, tolerance: float) -> Mask:
    """Whether each row's nearest neighbour changes, (n,), between two matrices (n, d)."""
    a, b = unit(a), unit(b)
    count = len(a)
    changed = np.zeros(count, dtype=bool)
    if count < 2:
        return changed
    step = max(1, _MOST // count)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        sides = [side[rows] @ side.T for side in (a, b)]
        for side in sides:
            side[np.arange(len(rows)), rows] = -np.inf
        nearest = sides[0].argmax(axis=1)
        changed[rows] = sides[1].max(axis=1) - sides[1][np.arange(len(rows)), nearest] > 2 * tolerance
    return changed


def _label(bucket: int) -> str:
    if bucket == len(BUCKETS):
        return f"{BUCKETS[-1] + 1}-"
    return f"{BUCKETS[bucket - 1] + 1 if bucket else 0}-{BUCKETS[bucket]}"
