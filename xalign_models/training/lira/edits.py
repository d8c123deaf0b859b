"""Random edits of a text, and the edit distance."""

import random
from collections.abc import Hashable, Sequence
from typing import TypeVar

Unit = TypeVar("Unit", bound=Hashable)


def perturb(units: Sequence[Unit], most: int, alphabet: Sequence[Unit], draw: random.Random) -> list[Unit]:
    """Apply one to ``most`` insertions, deletions and substitutions, equally likely, to tokens or characters.

    At least one unit is kept; new units come from ``alphabet``.
    """
    edited = list(units)
    for _ in range(draw.randint(1, most)):
        operation = draw.choice(("insert", "delete", "substitute"))
        if operation == "insert" or not edited:
            edited.insert(draw.randint(0, len(edited)), draw.choice(alphabet))
        elif operation == "substitute":
            edited[draw.randrange(len(edited))] = draw.choice(alphabet)
        elif len(edited) > 1:
            del edited[draw.randrange(len(edited))]
    return edited


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions that turn the first sequence into the second.

    Ukkonen's algorithm: a band of width t suffices if the distance is at most t, so the band is doubled until then. The
    cost is the length times the distance.
    """
    band = max(1, abs(len(first) - len(second)))
    while (distance := _banded(first, second, band)) > band:
        band *= 2
    return distance


def _banded(first: Sequence[Hashable], second: Sequence[Hashable], band: int) -> int:
    far = len(first) + len(second)
    row = {j: j for j in range(min(band, len(second)) + 1)}
    for i, unit in enumerate(first, 1):
        above, row = row, {}
        for j in range(max(0, i - band), min(len(second), i + band) + 1):
            if j == 0:
                row[j] = i
                continue
            substituted = above.get(j - 1, far) + (unit != second[j - 1])
            row[j] = min(above.get(j, far) + 1, row.get(j - 1, far) + 1, substituted)
    return row.get(len(second), far)
