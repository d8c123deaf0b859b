"""The one rule of impossible scores: text, NaN, infinity, or values outside the metric's range."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from xalign_models.files import is_number

MAIN = "main_score"
_SIGNED = re.compile("spearman|pearson|kendall|matthews|mcc|rand_|p-MRR", re.IGNORECASE)
"""Metrics between -1 and 1."""
_SHARE = re.compile("(before_|after_)?(precision|recall|ndcg|map|mrr|hit_rate|accuracy|f1|ap)(_|$)")
"""Metrics between 0 and 1."""
_LARGEST = sys.float_info.max
_NOISE = 1e-6  # of scores with six decimals


def minimum(metrics: Iterable[str]) -> int:
    """Minimum of a main score that has these other names, -1 or 0; its maximum is 1."""
    return -1 if any(map(_is_signed, metrics)) else 0


def why_impossible(entry: Mapping[str, Any], metric: str = MAIN) -> str | None:
    """Why a score in a result's entry is impossible; None if it is possible or missing.

    The main score has the range of the metrics that it equals. Of the other metrics, those with unknown names may have
    any finite value.
    """
    if metric not in entry:
        return None
    value = entry[metric]
    least = minimum(name for name, other in entry.items() if other == value) if metric == MAIN else _minimum_of(metric)
    return outside(value, least)


def bounds(metric: str) -> tuple[float, float]:
    """Least and largest value of a metric, by its name; of a main score, those that are possible for any metric."""
    least = 0 if metric == MAIN else _minimum_of(metric)
    return (-_LARGEST, _LARGEST) if least is None else (least - _NOISE * (metric != MAIN), 1 + _NOISE)


def outside(value: Any, least: float | None) -> str | None:
    """Why a value is no score between ``least`` and 1, or no finite number if ``least`` is None; None if it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{json.dumps(value)[:40]} is not a number"
    if not is_number(value):
        return f"{str(value)[:40]} is not finite"
    if least is not None and not least - _NOISE <= value <= 1 + _NOISE:
        return f"{100 * value:g}% is not between {100 * least}% and 100%"
    return None


@cache
def _is_signed(metric: str) -> bool:
    return bool(_SIGNED.search(metric))


@cache
def _minimum_of(metric: str) -> int | None:
    """Minimum of a metric by its name; None if it has no bounds."""
    return 0 if _SHARE.match(metric) else -1 if _is_signed(metric) else None
