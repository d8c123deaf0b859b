"""Detects impossible scores: text, NaN, infinity, or values outside the metric's range."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from xalign_models.files import is_number

_NEGATIVE = re.compile("spearman|pearson|kendall|matthews|mcc|rand|p-MRR", re.IGNORECASE)
"""Metrics that may be negative."""
_NOISE = 1e-6  # of scores with six decimals


def why_impossible(entry: Mapping[str, Any], metric: str) -> str | None:
    """The reason why a score of a result's entry is impossible; None if it is possible or missing."""
    if metric not in entry:
        return None
    value = entry[metric]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{json.dumps(value)[:40]} is not a number"
    if not is_number(value):
        return f"{str(value)[:40]} is not finite"
    metrics = {key for key, number in entry.items() if number == value}
    least = -1 if any(map(_NEGATIVE.search, metrics)) else 0
    if not least - _NOISE <= value <= 1 + _NOISE:
        return f"{100 * value:g}% is not between {100 * least}% and 100%"
    return None
