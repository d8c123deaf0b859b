"""Texts a few random edits away, how many edits that is, and what corrupts a translation."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import TypeVar

Unit = TypeVar("Unit", bound=Hashable)


def perturb(units: Sequence[Unit], most: int, alphabet: Sequence[Unit], draw: random.Random) -> list[Unit]:
    """Tokens or characters after one to ``most`` edits: insertions, deletions and substitutions, each as likely.

    Args:
        units: At least one of them stays.
        most: Edits at most; how many there are is drawn.
        alphabet: What is inserted and put in the place of others.
        draw: The generator.
    """
    found = list(units)
    for _ in range(draw.randint(1, most)):
        operation = draw.choice(("insert", "delete", "substitute"))
        if operation == "insert" or not found:
            found.insert(draw.randint(0, len(found)), draw.choice(alphabet))
        elif operation == "substitute":
            found[draw.randrange(len(found))] = draw.choice(alphabet)
        elif len(found) > 1:
            del found[draw.randrange(len(found))]
    return found


def levenshtein(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions from one sequence to the other.

    Ukkonen's bands: a band of width t is enough where the distance is at most t, and is widened until it is; near
    sequences cost their length times their distance.
    """
    band = max(1, abs(len(one) - len(other)))
    while (found := _banded(one, other, band)) > band:
        band *= 2
    return found


def _banded(one: Sequence[Hashable], other: Sequence[Hashable], band: int) -> int:
    far = len(one) + len(other)
    row = {j: j for j in range(min(band, len(other)) + 1)}
    for i, unit in enumerate(one, 1):
        above, row = row, {}
        for j in range(max(0, i - band), min(len(other), i + band) + 1):
            if j == 0:
                row[j] = i
                continue
            row[j] = min(above.get(j, far) + 1, row.get(j - 1, far) + 1, above.get(j - 1, far) + (unit != other[j - 1]))
    return row.get(len(other), far)


class Corruption(StrEnum):
    """What may be wrong with a translation."""

    DROP = "words dropped"
    """A third of the words, drawn, is missing."""
    SHUFFLE = "words shuffled"
    OTHER = "another sentence"
    WRAPPER = "meta text"
    """An assistant's words before and behind it."""


def corrupt(translation: str, how: Corruption, other: str, draw: random.Random) -> str:
    """A worse translation.

    Args:
        translation: A good one.
        how: What happens to it.
        other: Another sentence of the same text.
        draw: The generator.
    """
    if how is Corruption.OTHER:
        return other
    if how is Corruption.WRAPPER:
        return (
            f"Sure, here is the translated sentence: {translation} If you need any other help, I am glad to help you."
        )
    words = translation.split()
    if how is Corruption.DROP:
        gone = set(draw.sample(range(len(words)), k=-(-len(words) // 3))) if len(words) > 1 else set()
        return " ".join(word for i, word in enumerate(words) if i not in gone)
    draw.shuffle(words)
    return " ".join(words)
