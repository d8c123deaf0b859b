"""All pairs: batches equal pairs one by one, the budget holds, vectors beyond it are the same."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from xalign_models.ranking import neighbours
from xalign_models.ranking import pairs as mining
from xalign_models.ranking.neighbours import measured_ranks
from xalign_models.ranking.pairs import (
    LanguageVectors,
    Sides,
    all_pairs,
    batch_ranks,
    pair_ranks,
    place,
)
from xalign_models.ranking.ranks import TIE, normalise

NAMES = [f"l{i}" for i in range(6)]
PAIRS = list(itertools.combinations(NAMES, 2))


def languages(n=40, m=0, d=12, noise=1.0, seed=0):
    """Noisy rotations of one content, the last language's first two rows equal."""
    rng = np.random.default_rng(seed)
    content = rng.standard_normal((n + m, d))
    found = {}
    for name in NAMES:
        turned = (content + noise * rng.standard_normal(content.shape)) @ (
            np.linalg.qr(rng.standard_normal((d, d))).Q if m else np.eye(d)
        )
        rows = normalise(turned)
        rows[1] = rows[0] if name == NAMES[-1] else rows[1]
        found[name] = Sides(rows[:n], rows[n:] if m else None)
    return found


def pretend(monkeypatch):
    """The accelerator's code on the CPU."""
    inner = mining.place
    monkeypatch.setattr(mining, "place", lambda sides, _: inner(sides, "cpu"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 1 << 31))


def sorted_ranks(a, b):
    scores = np.round(a.astype(np.float64) @ b.T.astype(np.float64), 7)
    return np.array([rankdata(-row, method="max")[i] for i, row in enumerate(scores)])


@pytest.mark.parametrize("device", ["cpu", "batched", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ranks_of_all_pairs_equal_a_sort_with_ties_against_the_model(device, monkeypatch):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = languages()
    if device == "batched":
        pretend(monkeypatch)
    ranked = {pair: both for pair, *both in all_pairs(found.__getitem__, PAIRS, device=device)}
    assert list(ranked) == PAIRS
    for (a, b), (forward, backward, measures) in ranked.items():
        np.testing.assert_allclose(measures, measured_ranks(found[a].rows, found[b].rows)[2], atol=1e-5)
        np.testing.assert_array_equal(forward[0], sorted_ranks(found[a].rows, found[b].rows))
        np.testing.assert_array_equal(backward[0], sorted_ranks(found[b].rows, found[a].rows))
        if b == NAMES[-1]:
            assert forward[0][:2].min() >= 2  # two equal counterparts: neither is first


@pytest.mark.parametrize(("m", "d"), [(60, 12), (8, 12), (8, 30)], ids=["m >= d", "m < d", "2m < d"])
def test_a_batch_gives_what_its_pairs_give_with_rotations(m, d):
    found = languages(m=m, d=d, noise=0.3)
    first, *others = found.values()
    forward, backward, _ = batch_ranks(place(first, "cpu"), [place(one, "cpu") for one in others])
    assert forward.shape == backward.shape == (5, 2, 40)
    for i, other in enumerate(others):
        expected = pair_ranks(first, other)
        np.testing.assert_array_equal(forward[i], expected[0])
        np.testing.assert_array_equal(backward[i], expected[1])
    assert np.mean(forward[:, 1] == 1) > np.mean(forward[:, 0] == 1)  # the rotation is of use


def test_batches_are_as_large_as_the_budget_allows(monkeypatch):
    found, sizes = languages(), []
    pretend(monkeypatch)
    inner = mining.batch_ranks
    monkeypatch.setattr(mining, "batch_ranks", lambda a, others: (sizes.append(len(others)), inner(a, others))[1])
    budget = 2 * 2 * (6 * 40 * 40 + 4 * 40 * 12)
    assert [pair for pair, *_ in all_pairs(found.__getitem__, PAIRS, device="accelerator", budget=budget)] == PAIRS
    assert sizes == [2, 2, 1, 2, 2, 2, 1, 2, 1]
    sizes.clear()
    placed = Counter()
    inner_place = mining.place
    monkeypatch.setattr(mining, "place", lambda sides, _: (placed.update([id(sides)]), inner_place(sides, "cpu"))[1])
    list(all_pairs(found.__getitem__, PAIRS, device="accelerator", budget=1 << 20))
    assert set(placed.values()) == {1}
    sizes.clear()
    list(all_pairs(found.__getitem__, PAIRS, device="accelerator", budget=1))
    assert sizes == [1] * 15


def test_vectors_beyond_the_budget_are_mapped_from_a_file_and_equal():
    kept = LanguageVectors(budget=3 * 40 * 12 * 4)
    found = languages()
    for name, sides in found.items():
        kept[name] = sides
    for name, sides in found.items():
        np.testing.assert_array_equal(kept[name].rows, sides.rows)
    assert [isinstance(kept[name].rows, np.memmap) for name in NAMES] == [False] * 3 + [True] * 3
    files = [Path(kept[name].rows.filename) for name in NAMES[3:]]
    assert {file.parent.name.partition("-vectors-")[0] for file in files} == {"xalign"}
    inside = {pair: both for pair, *both in all_pairs(found.__getitem__, PAIRS)}
    for pair, *both in all_pairs(kept.__getitem__, PAIRS):
        for part, expected in zip(both, inside[pair], strict=True):
            np.testing.assert_array_equal(part, expected)
    del kept
    assert not any(file.exists() for file in files)


def test_what_a_pair_holds_is_counted():
    rows, fit = np.zeros((40, 12), np.float32), np.zeros((60, 12), np.float32)
    scores_and_rows = 6 * 40 * 40 + 4 * 40 * 12
    assert mining._bytes_of_pair(Sides(rows)) == scores_and_rows
    assert mining._bytes_of_pair(Sides(rows, fit)) == scores_and_rows + 12 * 60 * 12 + 48 * 12 * 12 + 8 * 40 * 12


def test_no_pairs_are_no_ranks():
    assert list(all_pairs(languages().__getitem__, [], device="accelerator", budget=100)) == []


@pytest.mark.parametrize(("most", "measured"), [(40, True), (39, False)])
def test_measures_are_left_out_beyond_a_number_of_rows(monkeypatch, most, measured):
    for module in (mining, neighbours):
        monkeypatch.setattr(module, "ROWS", most)
    first, *others = (place(sides, "cpu") for sides in languages().values())
    forward, backward, measures = batch_ranks(first, others)
    alone = pair_ranks(languages()[NAMES[0]], languages()[NAMES[1]])
    assert measures.shape == (5, 2, len(neighbours.NAMES)) and alone[2].shape == (2, len(neighbours.NAMES))
    for found in (measures, alone[2]):
        assert np.isfinite(found).all() == measured
        assert np.isnan(found).all() != measured
    np.testing.assert_array_equal(forward[0], alone[0])
    np.testing.assert_array_equal(backward[0], alone[1])


def test_scores_that_are_equal_within_the_tie_count_against_the_model_in_both_directions():
    gold = torch.ones((), dtype=torch.float32)
    scores = torch.zeros(1, 3, 3)
    scores[0].diagonal().fill_(gold)
    scores[0, 0, 1] = gold - TIE  # the largest that is not beaten
    forward, backward = mining._counts(scores)
    assert forward.tolist() == [[2, 1, 1]]
    assert backward.tolist() == [[1, 2, 1]]
