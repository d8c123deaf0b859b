"""Shared code of the analyses: labels on tables, results of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xalign_models.boards.leaderboard import choose_models
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results

if TYPE_CHECKING:
    import pandas as pd

    from xalign_models.analysis import Request
    from xalign_models.results.reading import TaskScores


def labelled(frame: pd.DataFrame, **labels: object) -> pd.DataFrame:
    """The table with constant columns added before its own."""
    return frame.assign(**labels)[[*labels, *frame.columns]]


def scored(request: Request, task: str) -> dict[str, TaskScores]:
    """Scores of a task by model: the requested ones, or all that ``xalign run`` has scored.

    Raises:
        ResultsError: A model has no such result; the message has the command that makes it.
    """
    try:
        tables = read_results(request.results, tasks=(task,)).tables
        if names := choose_models([model for model, _ in tables], request.models or None, task):
            return {name: tables[name, task] for name in names}
    except ResultsError as error:
        reason = str(error)
    else:
        reason = f"There are no results of {task} under {request.results}."
    models = " ".join(f"-m {name}" for name in request.models or ("MODEL",))
    raise ResultsError(f"{reason} Make them with `xalign run {models} -t {task} -o {request.results}`.")
