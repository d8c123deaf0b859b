"""Edits, distances, corruptions and chrF, against definitions and numbers worked out by hand."""

from __future__ import annotations

import random
from functools import cache

import pytest

from xalign_models.generation.translators.lookup import Corruption, corrupt
from xalign_tasks.analyses.lipschitz import levenshtein, perturb


def by_recursion(one: str, other: str) -> int:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        )

    return distance(len(one), len(other))


def test_distances_are_the_definitions() -> None:
    draw = random.Random(0)
    assert levenshtein("kitten", "sitting") == 3
    assert levenshtein("", "") == 0 and levenshtein("", "abc") == 3
    for _ in range(300):
        one, other = ("".join(draw.choice("abc") for _ in range(draw.randrange(12))) for _ in range(2))
        assert levenshtein(one, other) == by_recursion(one, other)
    assert levenshtein([1, 2, 3], [1, 3]) == 1


@pytest.mark.parametrize("most", [1, 3, 10])
def test_edits_are_within_their_number_and_use_all_operations(most: int) -> None:
    draw, lengths, distances = random.Random(0), set[int](), set[int]()
    for _ in range(300):
        found = perturb("abcdefghij", most, "xyz", draw)
        distance = levenshtein("abcdefghij", found)
        assert distance <= most and found
        lengths.add(len(found) - 10)
        distances.add(distance)
    assert {-1, 0, 1} <= lengths
    assert most - 1 <= max(distances) <= most
    assert len(perturb("a", 10, "xyz", draw)) >= 1


def test_corruptions_do_what_they_say() -> None:
    draw, text = random.Random(0), "one two three four five six seven"
    dropped = corrupt(text, Corruption.DROP, "x", draw).split()
    assert len(dropped) == 4 and [word for word in text.split() if word in dropped] == dropped
    shuffled = corrupt(text, Corruption.SHUFFLE, "x", draw)
    assert shuffled != text and sorted(shuffled.split()) == sorted(text.split())
    assert corrupt(text, Corruption.OTHER, "x", draw) == "x"
    wrapped = corrupt(text, Corruption.WRAPPER, "x", draw)
    assert text in wrapped and "translat" in wrapped
    assert corrupt("one", Corruption.DROP, "x", draw) == "one"
