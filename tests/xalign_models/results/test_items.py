"""Outcomes of single items: small, whole, and only those whose mean is the score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models.results import items as reading_items
from xalign_models.results.items import (
    full_folder,
    keep_outcomes,
    outcomes_of,
    outcomes_path,
    read_outcomes,
    save_items,
    write_outcomes,
)
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import read_results

ROOT = Path(__file__).parents[3]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["hits", "values", "shares"]),
)
def test_what_is_written_is_read(tmp_path_factory, lengths: list[int], seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    values = {f"s{i}": rng.random(n) for i, n in enumerate(lengths)}
    outcomes = {subset: array < 0.5 if kind == "hits" else array for subset, array in values.items()}
    if kind == "shares":
        outcomes = {subset: 6 * array - 8 for subset, array in values.items()}
    path = tmp_path_factory.mktemp("items") / "T.npz"
    write_outcomes(path, outcomes)
    found = read_outcomes(path)
    assert list(found) == sorted(outcomes)
    for subset, array in outcomes.items():
        assert (
            np.abs(found[subset] - array.astype(float)).max() <= {"hits": 0, "values": 1 / 65535, "shares": 1e-6}[kind]
        )
    write_outcomes(path, found)  # and what is read is written the same
    assert all((read_outcomes(path)[subset] == array).all() for subset, array in found.items())


def test_hits_take_a_bit_each(tmp_path) -> None:
    hits = np.random.default_rng(0).random((400, 1000)) < 0.5
    write_outcomes(tmp_path / "T.npz", {f"s{i}": row for i, row in enumerate(hits)})
    assert (tmp_path / "T.npz").stat().st_size < 1.05 * hits.size / 8


@pytest.mark.parametrize(
    ("items", "score", "expected"),
    [
        (np.array([1, 2, 7, 20]), 0.25, [1, 0, 0, 0]),
        (np.array([1, 2, 7, 20]), 0.5, [1, 1, 0, 0]),  # the main score is precision at 5
        (np.array([1, 2, 7, 20]), 0.6, None),
        (np.array([[9, 9, 9, 9], [1, 6, 6, 6]]), 0.25, [1, 0, 0, 0]),  # after, not before
        (np.array([["a", "a"], ["b", "a"]]), 0.5, [1, 0]),
        (np.array([0.25, 0.75]), 0.5, [0.25, 0.75]),
        (np.array([-0.25, 1.75]), 0.75, [-0.25, 1.75]),  # shares in a correlation
        (np.array([-0.25, 0.75]), 0.7, None),  # cosines, whose mean is not the score
        (np.array([0.25, np.nan]), 0.25, None),
        (np.zeros((3, 4)), 0.0, None),
        (np.zeros(0), 0.0, None),
    ],
)
def test_the_outcomes_are_those_whose_mean_is_the_score(items, score, expected) -> None:
    found = outcomes_of(items, score)
    assert (found is None) if expected is None else found.tolist() == expected


def test_subsets_of_an_earlier_run_stay_and_no_others_come_in(tmp_path) -> None:
    save_items(full_folder(tmp_path), "T", {"en": np.array([1, 2]), "de": np.array([1, 1]), "fr": np.array([1])})
    keep_outcomes(tmp_path, "T", {"en": 0.5, "de": 0.1})  # de's items are of other scores, fr has none
    path = outcomes_path(tmp_path, "T")
    assert {subset: array.tolist() for subset, array in read_outcomes(path).items()} == {"en": [True, False]}
    keep_outcomes(tmp_path, "T", {"de": 1.0})
    assert sorted(read_outcomes(path)) == ["de", "en"]
    keep_outcomes(tmp_path, "Other", {"de": 1.0})
    assert not outcomes_path(tmp_path, "Other").exists()


def test_outcomes_in_memory_are_bounded_and_those_of_a_baseline_stay(monkeypatch) -> None:
    tables = [table for (_, task), table in read_results(ROOT, tasks=["XQuAD-R"]).tables.items()]
    baseline, *models = tables[:8]
    size = sum(array.nbytes for array in reading_items.Items(MAIN).outcomes(baseline).values())
    read = []
    monkeypatch.setattr(reading_items, "KEPT", 3 * size)
    monkeypatch.setattr(
        reading_items, "read_outcomes", lambda path, scores: read.append(path) or read_outcomes(path, scores)
    )
    items = reading_items.Items(MAIN)
    for model in models:
        assert items.outcomes(model).keys() == items.outcomes(baseline).keys() != set()
    assert len(read) == len(models) + 1
    items.outcomes(models[0])  # which had to leave
    assert len(read) == len(models) + 2


@pytest.mark.parametrize("spoil", ["cut", "flip", "empty", "another", "short"])
def test_damage_is_said_in_one_line_and_the_next_run_writes_anew(tmp_path, caplog, spoil: str) -> None:
    path = outcomes_path(tmp_path, "T")
    write_outcomes(path, {"en": np.random.default_rng(0).random(5000) < 0.5})
    whole = path.read_bytes()
    if spoil == "another":
        np.savez(path, en=np.arange(3))
    elif spoil == "short":
        np.savez(path, subsets=np.array(["en"]), lengths=np.array([99]), hits=np.zeros(2, np.uint8))
    else:
        middle = bytearray(whole)
        middle[len(whole) - 900] ^= 0xFF
        path.write_bytes({"cut": whole[:-40], "flip": bytes(middle), "empty": b""}[spoil])
    assert read_outcomes(path) == {}
    (record,) = caplog.records
    assert record.getMessage().count(str(path)) == 1
    assert "\n" not in record.getMessage()
    save_items(full_folder(tmp_path), "T", {"en": np.array([1, 2])})
    keep_outcomes(tmp_path, "T", {"en": 0.5})
    assert read_outcomes(path)["en"].tolist() == [True, False]
