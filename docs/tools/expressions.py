"""The language of claims and tables: Python expressions over :data:`docs.tools.sources.SOURCES` and arithmetic."""

from collections.abc import Mapping
from math import log
from statistics import fmean
from typing import Any

import docs.tools.comparisons  # noqa: F401  # registers its functions
from docs.tools.sources import SOURCES

_ARITHMETIC = {f.__name__: f for f in (abs, all, any, fmean, len, log, map, max, min, range, round, str, sum, zip)}


def evaluate(expression: str, variables: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression, which may also use these variables; it has no other builtins."""
    names = {"__builtins__": {}, **SOURCES, **_ARITHMETIC, **(variables or {})}
    return eval(" ".join(expression.split()), names)  # from the repository's own pages and tables
