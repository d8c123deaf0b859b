"""What the analyses share: labels on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def labelled(frame: pd.DataFrame, **labels: object) -> pd.DataFrame:
    """The table with further columns, each of one value, before its own."""
    return frame.assign(**labels)[[*labels, *frame.columns]]
