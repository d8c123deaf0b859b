"""Each change changes the meaning as it says, leaves all else, and is the same every time."""

from __future__ import annotations

import pytest

from xalign_tasks.perturbations import KINDS, perturbed

TEXTS = [
    "In 1994, the river Danube was crossed by 12,500 people, and nobody fell into it.",
    "The three boats could not leave Hamburg.",
    "Dogs don't sleep; cats can't sing.",
    "Hello",
    "Yesterday Anna Smith said that she will visit Peru.",
]


def test_changes_by_hand():
    numbers, negation, names, order, clause = (perturbed(TEXTS, kind) for kind in KINDS)
    assert numbers[0] != TEXTS[0]
    assert len(numbers[0]) == len(TEXTS[0])
    assert numbers[0].startswith("In ")
    assert numbers[0].endswith("12,500 people, and nobody fell into it.")  # one number is changed
    assert numbers[1].endswith("boats could not leave Hamburg.")
    assert "three" not in numbers[1]
    assert negation[0] == TEXTS[0].replace("was crossed", "was not crossed")
    assert negation[1] == "The three boats could leave Hamburg."
    assert negation[2] == "Dogs do sleep; cats can't sing."
    assert names[1].startswith("The three boats could not leave ")
    assert "Hamburg" not in names[1]
    assert sorted(order[0].split()) == sorted(TEXTS[0].split()) or order[0] != TEXTS[0]
    assert clause[0].endswith("people.")
    assert [part[3] for part in (numbers, negation, names, order, clause)] == [None] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_reproducible_and_never_the_sentence_itself(kind):
    found = perturbed(TEXTS, kind)
    assert found == perturbed(TEXTS, kind)
    assert all(text != own for text, own in zip(found, TEXTS, strict=True))
    assert perturbed(TEXTS[3:4], kind) == [None]


def test_order_keeps_the_letters():
    for text, found in zip(TEXTS, perturbed(TEXTS, "order"), strict=True):
        assert found is None or sorted(found) == sorted(text)
