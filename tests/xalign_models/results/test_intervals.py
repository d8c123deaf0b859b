"""Intervals and ranks against the bootstrap, planted orders and their invariances."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.boards.leaderboard import leaderboard
from xalign_models.results.intervals import half_width, rank_intervals
from xalign_models.results.items import Items, equal_weights
from xalign_models.results.reading import read_results


def test_interval_is_that_of_the_bootstrap() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.choice([-1.0, 0.0, 1.0], 800, p=[0.05, 0.8, 0.15]) / 800
    sums = [gaps[rng.integers(0, 800, 800)].sum() for _ in range(20000)]
    low, high = np.quantile(sums, [0.025, 0.975])
    assert gaps.sum() - half_width(gaps) == pytest.approx(low, abs=0.002)
    assert gaps.sum() + half_width(gaps) == pytest.approx(high, abs=0.002)


def test_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        gaps = rng.choice([-1.0, 0.0, 1.0], 300, p=[0.1, 0.7, 0.2]) / 300
        inside += abs(gaps.sum() - 0.1) <= half_width(gaps)
    assert 0.93 < inside / 2000 < 0.97


def test_one_sentence_says_nothing() -> None:
    assert half_width(np.array([0.5])) == np.inf


def test_shares_add_up_to_the_macro_mean(put, tmp_path) -> None:
    rng = np.random.default_rng(2)
    hits = {"a": rng.random(70) < 0.3, "b": rng.random(40) < 0.9}
    scores = {subset: round(float(one.mean()), 6) for subset, one in hits.items()}
    ranks = {subset: np.where(one, 1, 4).astype(np.uint16) for subset, one in hits.items()}
    put("xalign/plain__tiny", "T", scores, ranks=ranks)
    table = read_results(tmp_path).tables["xalign/plain__tiny", "T"]
    assert Items("main_score").shares(table, equal_weights(["a", "b"])).sum() == pytest.approx(
        (hits["a"].mean() + hits["b"].mean()) / 2
    )


def test_planted_ranks_are_found_whatever_the_order() -> None:
    rng = np.random.default_rng(3)
    hits = np.array([rng.random(3000) < p for p in (0.9, 0.5, 0.5, 0.1)])
    ranks = rank_intervals(hits / 3000)
    assert ranks == [(1, 1), (2, 3), (2, 3), (4, 4)]
    order = [2, 0, 3, 1]
    assert rank_intervals(hits[order] / 3000) == [ranks[i] for i in order]


def test_equal_models_share_all_ranks() -> None:
    hits = np.random.default_rng(4).random(500) < 0.5
    assert rank_intervals(np.stack([hits, hits, hits]) / 500) == [(1, 3)] * 3


def test_a_constant_lead_is_certain() -> None:
    base = np.linspace(0, 1, 100) / 200
    assert rank_intervals(np.stack([base, base + 0.001])) == [(2, 2), (1, 1)]


def test_chance_rarely_orders_equal_models() -> None:
    """With Holm's correction, five models of one quality are ordered anywhere in about 5% of the tries or fewer."""
    rng = np.random.default_rng(5)
    wrong = sum(rank_intervals((rng.random((5, 400)) < 0.5) / 400) != [(1, 5)] * 5 for _ in range(400))
    assert wrong / 400 < 0.08


def test_board_has_intervals_and_marks_ties(put, tmp_path) -> None:
    rng = np.random.default_rng(6)
    base = rng.random(1000) < 0.5
    good = base | (rng.random(1000) < 0.5)
    same = good.copy()
    same[:4] = ~same[:4]
    names = {"xalign/plain__tiny": base, "xalign/lsar__tiny": good, "xalign/centered__tiny": same}
    for name, hits in names.items():
        plain = None if name.startswith("xalign/plain") else "xalign/plain__tiny"
        ranks = np.where(hits, 1, 4).astype(np.uint16)
        put(name, "T", {"en": round(float(hits.mean()), 6)}, baseline=plain, ranks={"en": ranks})
    board = leaderboard(read_results(tmp_path))
    cells = {row.name: row.cells["T"] for row in board.rows}
    top = cells["xalign/lsar__tiny"]
    assert top.low < top.difference < top.high
    assert top.high - top.low == pytest.approx(200 * half_width((good.astype(float) - base) / 1000), abs=1e-3)
    assert cells["xalign/plain__tiny"].ranks == (3, 3)
    assert {name for name, cell in cells.items() if cell.best or cell.tied} == {*names} - {"xalign/plain__tiny"}
    assert any(line.startswith("Underlined") for line in board.legend)
