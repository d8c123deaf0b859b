"""Groups texts of similar length into batches under a token budget."""

from collections.abc import Iterator, Sequence

import numpy as np

SPREAD = 0.75
"""Minimum length of a batch's shortest text, as a share of its longest."""


def token_budget_batches(lengths: Sequence[int], budget: int, least: int = 0) -> Iterator[np.ndarray]:
    """Indices of texts, batch by batch, longest first.

    A batch of b texts whose longest has s tokens costs b * s padded tokens. It has as many texts as the budget allows
    with at most a quarter of padding, and at least one. The longest texts come first, so that a lack of memory shows at
    once.

    Args:
        lengths: Tokens of each text.
        budget: Maximum of padded tokens in a batch.
        least: Padded tokens up to which a batch is filled regardless of padding.

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
        budget: Maximum of tokens in a batch; a longer text is a batch of its own.

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
