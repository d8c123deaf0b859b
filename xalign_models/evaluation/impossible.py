"""Scores that cannot be: text, NaN, infinite, or outside what their metric can have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from xalign_models.evaluation.results import MAIN, TaskScores

_NEGATIVE = re.compile("spearman|pearson|kendall|matthews|mcc|rand|p-MRR", re.IGNORECASE)
"""Metrics that may be below zero."""
_NOISE = 1e-6  # of scores with six decimals


def impossible_scores(table: TaskScores) -> dict[str, str]:
    """What is wrong with a result's main scores, by subset; empty if nothing is.

    Reads the file again, because :class:`TaskScores` has usable numbers only. A subset without a main score is not
    here: it is missing.
    """
    path = table.folder / f"{table.task}.json"
    if not path.is_file():  # numbers of a baseline, which are checked where it is read
        return {}
    splits = json.loads(path.read_text(encoding="utf-8"))["scores"]
    entries = [(split, entry) for split, subsets in splits.items() for entry in subsets if MAIN in entry]
    several = len({split for split, subsets in splits.items() if subsets}) > 1
    wrong = {
        f"{split}/{entry['hf_subset']}" if several else str(entry["hf_subset"]): _wrong(entry)
        for split, entry in entries
    }
    return {subset: reason for subset, reason in wrong.items() if reason}


def _wrong(entry: Mapping[str, Any]) -> str | None:
    value = entry[MAIN]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{json.dumps(value)[:40]} is not a number"
    if not isfinite(value):
        return f"{value} is not finite"
    metrics = {key for key, number in entry.items() if number == value}
    least = -1 if any(map(_NEGATIVE.search, metrics)) else 0
    if not least - _NOISE <= value <= 1 + _NOISE:
        return f"{100 * value:g}% is not between {100 * least}% and 100%"
    return None
