"""Holm's correction."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.results.significance import holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    assert holm([0.01, 0.02, 0.5], [2, 1, 1]) == pytest.approx([0.02, 0.04, 0.5])  # 4/2 * 0.01, 2/1 * 0.02, 1/1 * 0.5


def test_holm_keeps_its_level_where_all_are_one() -> None:
    """Fully dependent tests: 37 times the same p."""
    p = np.random.default_rng(0).random(2000)
    assert np.mean([min(holm([one] * 37)) < 0.05 for one in p]) <= 0.05
