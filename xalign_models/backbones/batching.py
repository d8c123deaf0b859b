"""Batches of similar length under a token budget, and their order restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

SPREAD = 0.75
"""The shortest text of a batch has at least this share of the longest one's tokens."""


def token_budget_batches(lengths: Sequence[int], budget: int, least: int = 0) -> Iterator[np.ndarray]:
    """Indices of texts, batch by batch, longest first.

    A batch of b texts whose longest has s tokens costs b * s padded tokens; it takes as many texts as keep that within
    the budget and at most a quarter of it padding, and always one. The longest come first, so that memory that does not
    suffice shows at once.

    Args:
        lengths: Tokens of each text.
        budget: Padded tokens of a batch.
        least: Padded tokens up to which a batch is filled whatever its padding.

    Yields:
        (b,) int64 indices; together a permutation of ``range(len(lengths))``, stable among equal lengths.
    """
    descending = -np.asarray(lengths, dtype=np.int64)
    order = np.argsort(descending, kind="stable")
    descending = descending[order]
    start = 0
    while start < len(order):
        longest = -int(descending[start])
        similar = int(np.searchsorted(descending, -SPREAD * longest, side="right"))
        filled = max(similar, start + least // max(1, longest))
        end = max(start + 1, min(start + budget // max(1, longest), filled))
        yield order[start:end]
        start = end


def packed_batches(lengths: Sequence[int], budget: int) -> Iterator[np.ndarray]:
    """Indices of texts, batch by batch, longest first, for batches without padding.

    Args:
        lengths: Tokens of each text.
        budget: Tokens of a batch, which takes one text at least.

    Yields:
        (b,) int64 indices; together a permutation of ``range(len(lengths))``, stable among equal lengths.
    """
    array = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-array, kind="stable")
    ends = np.cumsum(array[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield order[start:end]
        start = end


def useful_share(lengths: Sequence[int], budget: int) -> float:
    """Real tokens over padded tokens of :func:`token_budget_batches`, in (0, 1]; 1 is no padding at all."""
    array = np.asarray(lengths, dtype=np.int64)
    padded = sum(len(batch) * int(array[batch].max()) for batch in token_budget_batches(lengths, budget))
    return float(array.sum() / padded) if padded else 1.0
