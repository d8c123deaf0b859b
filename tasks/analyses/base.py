"""Shared code of the analyses: labels on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def labelled(frame: pd.DataFrame, **labels: object) -> pd.DataFrame:
    """The table with constant columns added before its own."""
    return frame.assign(**labels)[[*labels, *frame.columns]]
