"""The gate's error rates: a small simulation, and the committed table."""

from __future__ import annotations

import csv

import pytest

from docs.tools.gate_errors import CHURNS, FILE, ITEMS, Cell, rates

CELLS = [Cell(20, 1, 0.0), Cell(300, 1, 0.01), Cell(100, 22, 0.04), Cell(300, 22, 0.1, 0.5)]
TOGETHER = [Cell(300, 1, 0.0, together=5), Cell(300, 1, 0.04, together=5), Cell(1000, 1, 0.1, together=2)]


@pytest.mark.parametrize("cell", [*CELLS, *TOGETHER])
def test_neither_verdict_is_wrong_more_often_than_it_says(cell: Cell) -> None:
    score, _ = rates(cell, reports=4000 if cell.languages == 1 else 150)
    allowed = 6.5 if cell.languages == 1 else 10  # percent: 5 and three standard errors
    assert max(score["wrong_pass"], score["wrong_fail"]) <= allowed


def test_the_former_rule_was_wrong_more_often() -> None:
    """Its standard error is zero where no item moved: 0.99^20 = 82% of the samples of 20 items."""
    _, former = rates(Cell(20, 1, 0.0), reports=2000)
    assert former["wrong_pass"] > 75


def test_the_committed_table_holds_in_every_cell() -> None:
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["rule"] == "score"]
    assert {(int(row["items"]), float(row["churn"])) for row in rows} == {(n, 100 * c) for n in ITEMS for c in CHURNS}
    for row in rows:
        assert max(float(row["wrong_pass"]), float(row["wrong_fail"])) <= (5 if row["together"] == "1" else 6)
