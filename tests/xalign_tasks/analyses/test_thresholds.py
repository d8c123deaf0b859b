"""Recall and false positives, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_tasks.analyses.thresholds import rates


def test_questions_with_one_answer_sentence_are_no_false_positives_of_each_other():
    above = np.array([[True, True, False], [False, True, True], [False, False, False]])
    gold = np.array([4, 4, 7])  # the first two questions share their answer
    assert rates(above, gold) == {"recall": pytest.approx(60), "false positives": pytest.approx(25)}
