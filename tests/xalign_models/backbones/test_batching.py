"""Batches: a permutation of the texts, longest first, within the budget, and never smaller than need be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models.backbones.batching import SPREAD, packed_batches, token_budget_batches

lengths = st.lists(st.integers(0, 60), max_size=80)
budgets = st.integers(1, 200)


def useful_share(lengths: Sequence[int], budget: int) -> float:
    """Real tokens divided by padded tokens of :func:`token_budget_batches`, in (0, 1]; 1 means no padding."""
    array = np.asarray(lengths, dtype=np.int64)
    padded = sum(len(batch) * int(array[batch].max()) for batch in token_budget_batches(lengths, budget))
    return float(array.sum() / padded) if padded else 1.0


@given(lengths, budgets)
def test_batches_are_a_permutation_longest_first_and_stable(lengths: list[int], budget: int) -> None:
    order = [int(i) for batch in token_budget_batches(lengths, budget) for i in batch]
    assert order == sorted(range(len(lengths)), key=lambda i: -lengths[i])  # Python's sort is stable


@given(lengths, budgets)
def test_the_budget_holds_but_for_a_text_alone_and_no_batch_could_take_one_more(
    lengths: list[int], budget: int
) -> None:
    batches = list(token_budget_batches(lengths, budget))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(1, *(lengths[i] for i in batch)) <= budget
    for batch, following in pairwise(batches):
        longest = max(lengths[i] for i in batch)
        assert (len(batch) + 1) * max(1, longest) > budget or lengths[following[0]] < SPREAD * longest


@given(lengths, budgets)
def test_the_texts_of_a_batch_are_of_similar_length(lengths: list[int], budget: int) -> None:
    for batch in token_budget_batches(lengths, budget):
        assert min(lengths[i] for i in batch) >= SPREAD * max(lengths[i] for i in batch)
    assert useful_share(lengths, budget) >= SPREAD


@given(lengths, budgets)
def test_useful_share_is_real_over_padded(lengths: list[int], budget: int) -> None:
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in token_budget_batches(lengths, budget))
    share = useful_share(lengths, budget)
    assert share == pytest.approx(sum(lengths) / padded if padded else 1.0)
    assert 0 < share <= 1


def test_a_batch_is_filled_whatever_its_padding_up_to_the_least() -> None:
    descending = [100, 60, 10, 10, 10]
    sizes = [[len(one) for one in token_budget_batches(descending, 500, least)] for least in (0, 300, 500)]
    assert sizes == [[1, 1, 3], [3, 2], [5]]
    assert [len(one) for one in token_budget_batches(descending, 200, 500)] == [2, 3]  # the budget holds


@given(lengths, budgets)
def test_packed_batches_are_a_permutation_and_as_full_as_the_budget_allows(lengths: list[int], budget: int) -> None:
    batches = [batch.tolist() for batch in packed_batches(lengths, budget)]
    assert [i for batch in batches for i in batch] == sorted(range(len(lengths)), key=lambda i: -lengths[i])
    tokens = [sum(lengths[i] for i in batch) for batch in batches]
    assert all(len(batch) == 1 or n <= budget for batch, n in zip(batches, tokens, strict=True))
    assert all(n + lengths[following[0]] > budget for n, following in zip(tokens[:-1], batches[1:], strict=True))


def test_equal_lengths_waste_nothing_and_texts_one_by_one_neither() -> None:
    assert useful_share([7] * 50, 64) == 1.0
    assert useful_share([1, 5, 9], 1) == 1.0
    assert useful_share([], 10) == 1.0


def test_indices_can_index_an_array() -> None:
    (batch,) = token_budget_batches([8, 10, 9], 100)
    assert np.array(["a", "b", "c"])[batch].tolist() == ["b", "c", "a"]
