"""Lengths of the texts of tasks in characters, by side: LiRA's Table 8 and Figure 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.evaluation.recording import task_sides
from xalign_models.evaluation.run import make_task
from xalign_models.linalg.arrays import Float64
from xalign_models.published import published_table
from xalign_tasks.analyses.base import labelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("ProductSearchStandIn",)
BINS = 40
TEXTS = "texts"
"""What the texts of tasks without queries and documents are called."""


def analyse(request: Request) -> Findings:
    """Count, mean, deviation and quantiles of the distinct texts' lengths, and their histograms.

    Raises:
        DataError: A task is unknown, or its data are missing.
        LanguageError: A task has nothing in the languages.
    """
    tables, drawn, revisions = [], {}, {}
    for name in request.tasks or TASKS:
        lengths = {
            side or TEXTS: np.array([len(text) for text, _ in texts], float)
            for side, texts in sorted(task_sides(name, request.languages).items(), reverse=True)  # queries first
        }
        tables += [
            labelled(pd.DataFrame([statistics(values)]), task=name, side=side) for side, values in lengths.items()
        ]
        drawn[name] = draw(name, lengths)
        revisions[name] = str(make_task(name, request.languages).metadata.dataset["revision"])
    paper = published_table("lira-table-08.csv").pivot_table(index="subset", columns="metric", values="value")
    tables.append(labelled(paper.rename_axis("side").reset_index(), task="LazRetrieval [paper]"))
    notes = ("A text that several subsets have counts once.",)
    return Findings({"statistics": pd.concat(tables, ignore_index=True)}, drawn, notes, revisions)


def statistics(lengths: Float64) -> dict[str, float]:
    """The columns of the paper's Table 8, and more quantiles."""
    p5, median, p95 = np.quantile(lengths, (0.05, 0.5, 0.95))
    return {
        "max": lengths.max(),
        "min": lengths.min(),
        "mean": lengths.mean(),
        "median": median,
        "std": lengths.std(),
        "count": len(lengths),
        "p5": p5,
        "p95": p95,
    }


@figures.styled()
def draw(name: str, lengths: dict[str, Float64]) -> Figure:
    """A histogram by side, as shares of its texts."""
    figure, ((axis,),) = figures.canvas(width=8.0)
    longest = max(values.max() for values in lengths.values())
    bins = (
        np.arange(0, longest + 2, max(1, round(longest / BINS))) - 0.5
    )  # whole characters: others would fill unevenly
    for index, (side, values) in enumerate(lengths.items()):
        axis.hist(
            values,
            bins=bins,
            weights=np.full(len(values), 100 / len(values)),
            histtype="step",
            linewidth=1.8,
            color=figures.look(index)["color"],
            label=f"{side}: mean {values.mean():.0f}",
        )
    axis.legend()
    figures.describe(axis, name, "characters of the text", "texts, in % of the side")
    return figure
