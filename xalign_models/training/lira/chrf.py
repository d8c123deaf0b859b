"""ChrF (Popovic 2015): how much of a reference's character n-grams a translation has, and the other way round."""

from __future__ import annotations

from collections import Counter

ORDER, BETA = 6, 2


def chrf(translation: str, reference: str) -> float:
    """From 0 to 100; n-grams of one to six characters without white space, recall counting twice as much."""
    precision, recall, orders = 0.0, 0.0, 0
    for n in range(1, ORDER + 1):
        found, wanted = _grams(translation, n), _grams(reference, n)
        if not found or not wanted:
            continue
        common = sum((found & wanted).values())
        precision += common / sum(found.values())
        recall += common / sum(wanted.values())
        orders += 1
    if not orders or precision + recall == 0:
        return 0.0
    precision, recall = precision / orders, recall / orders
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def _grams(text: str, n: int) -> Counter[str]:
    dense = "".join(text.split())
    return Counter(dense[i : i + n] for i in range(len(dense) - n + 1))
