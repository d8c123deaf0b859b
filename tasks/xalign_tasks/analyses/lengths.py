"""Lengths of the texts of tasks in characters, by side: LiRA's Table 8 and Figure 9."""

import numpy as np
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.evaluation.recording import task_sides
from xalign_models.linalg.arrays import Float64
from xalign_tasks.analyses.base import Study, published_rows, statistics

TASKS = ("ProductSearchStandIn",)
COLUMNS = ("max", "min", "mean", "median", "std", "count", "p5", "p95")
"""The columns of the paper's Table 8, and more quantiles."""
BINS = 40
TEXTS = "texts"
"""Side of the texts in tasks without queries and documents."""


def analyse(request: Request) -> Findings:
    """Count, mean, deviation and quantiles of the distinct texts' lengths, and their histograms.

    Raises:
        DataError: A task is unknown, or its data is missing.
        LanguageError: A task has nothing in the languages.
    """
    study = Study()
    for name in request.tasks or TASKS:
        lengths = {
            side or TEXTS: np.array([len(text) for text, _ in texts], float)
            for side, texts in sorted(task_sides(name, request.languages).items(), reverse=True)  # queries first
        }
        for side, values in lengths.items():
            study.add("statistics", [statistics(values, COLUMNS)], task=name, side=side)
        study.figures[name] = draw(name, lengths)
        study.record_task(name, request.languages)
    paper = published_rows("lira-table-08.csv", "subset").rename(columns={"subset": "side"})
    study.add("statistics", paper, task="LazRetrieval [paper]")
    return study.findings("A text that several subsets have counts once.")


def draw(name: str, lengths: dict[str, Float64]) -> Figure:
    """A histogram by side, as shares of its texts."""
    figure, axis = figures.plot(name, "characters of the text", "texts, in % of the side", width=8.0)
    longest = max(values.max() for values in lengths.values())
    step = max(1, round(longest / BINS))
    bins = np.arange(0, longest + 1 + step, step) - 0.5  # whole characters fill evenly
    for index, (side, values) in enumerate(lengths.items()):
        weights = np.full(len(values), 100 / len(values))
        label = f"{side}: mean {values.mean():.0f}"
        figures.draw_histogram(axis, values, index, label, bins=bins, weights=weights)
    axis.legend()
    return figure
