"""Reads scores from a critic's output: strict JSON as requested, or text that contains it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

KEYS = ("semantic", "emotional", "pragmatic")
LEAST, MOST = 1.0, 10.0


def parse_scores(written: str) -> tuple[float, float, float] | None:
    """Semantic, emotional and pragmatic scores, within 1 to 10; None if any is missing or no number.

    The first balanced object counts, wherever it is. Numbers may be strings, or fractions such as "8/10"; values out
    of range are clipped; keys may be longer ("Semantic Fidelity").
    """
    fields = _object(written)
    if fields is None:
        return None
    scores = []
    for key in KEYS:
        value = next((value for name, value in fields.items() if str(name).strip().lower().startswith(key)), None)
        number = _number(value)
        if number is None:
            return None
        scores.append(min(MOST, max(LEAST, number)))
    return scores[0], scores[1], scores[2]


def _object(written: str) -> dict[str, Any] | None:
    decoder = json.JSONDecoder()
    for opening in re.finditer(r"\{", written):
        try:
            value, _ = decoder.raw_decode(written, opening.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        match = re.match(r"\s*([+-]?\d+(?:[.,]\d+)?)\s*(?:/\s*10\s*)?$", value)
        value = match and float(match[1].replace(",", "."))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
