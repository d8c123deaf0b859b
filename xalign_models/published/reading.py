"""Reads the tables of papers that are stored in this folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Published:
    """One number of a published table.

    Attributes:
        column: Model, variant and paper.
        subset: Published subset, such as ``deu-Latn``, ``eng-Latn->deu-Latn``, ``eng-Latn->*`` or ``average``.
        direction: ``eng->other`` or ``other->eng``, where the subset does not say so.
        metric: Published metric, such as ``accuracy``.
        value: The number in percent.
        whole: Whether it is the average over all subsets of the task.
    """

    column: str
    subset: str
    direction: str
    metric: str
    value: float
    whole: bool = False


def published_on(task: str) -> Iterator[Published]:
    """The published numbers on a task in percent, from the tables that ``index.json`` assigns to it."""
    index = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    ignored = {"task", "subset", "metric", "value", "unit", "direction", "printed", "row", "column", "params", "year"}
    for entry in index["files"]:
        if task not in entry["compares_with"]:
            continue
        with (FOLDER / entry["file"]).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["task"] == task and row["unit"] in {"percent", "fraction"}:
                    parts = {key: text for key, text in row.items() if key not in ignored and text}
                    variant = " ".join(f"{key} {text}" if text.isdecimal() else text for key, text in parts.items())
                    value = float(row["value"]) * (100 if row["unit"] == "fraction" else 1)
                    column = f"{variant} [{entry['paper']}]"
                    whole = entry.get("whole", False)
                    yield Published(column, row["subset"], row.get("direction", ""), row["metric"], value, whole)


def published_table(file: str) -> pd.DataFrame:
    """A table by its file name, with numbers in the column ``value`` and text in all others."""
    import pandas as pd

    return pd.read_csv(FOLDER / file, dtype=str, keep_default_na=False).astype({"value": float})
