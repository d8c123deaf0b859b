"""All measures of results side by side; a board shows only the main one."""

from statistics import fmean

from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.languages import to_flores
from xalign_models.results.languages import language_pairs
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import TaskScores
from xalign_tasks.analyses.base import Study, scored

ALL = "all"


def analyse(request: Request) -> Findings:
    """A table per task: each model's measures, as means over subsets; for pairs of languages, by direction.

    Raises:
        ModelError: No task was named.
        ResultsError: A model has no such result; the message has the command for it.
    """
    if not request.tasks:
        raise ModelError("--task: name at least one task that `xalign run` has scored, e.g. FloresPrecision.")
    study = Study()
    for task in request.tasks:
        for name, table in scored(request, task).items():
            study.add(task, measured(name.removeprefix("xalign/"), table))
            study.data[f"{task} {name}"] = str(table.dataset_revision)
    return study.findings(
        "Means over subsets, in the measure's own unit: shares are from 0 to 1. An empty cell was not measured."
    )


def measured(model: str, table: TaskScores) -> list[dict[str, object]]:
    """A row per direction: ``from English`` (to all others), ``into English``, ``without English``; else ``all``."""
    rows: list[dict[str, object]] = []
    for direction, subsets in _directions(table).items():
        values = {metric: table.values(metric) for metric in sorted(table.columns.keys() - {MAIN})}
        means = {
            metric: fmean(of_metric[subset] for subset in subsets)
            for metric, of_metric in values.items()
            if subsets <= of_metric.keys()
        }
        rows.append({"model": model, "direction": direction, "subsets": len(subsets), **means})
    return rows


def _directions(table: TaskScores) -> dict[str, set[str]]:
    subsets, english = table.values().keys(), to_flores(ENGLISH)
    pairs = language_pairs(subsets)
    if pairs is None:
        return {ALL: set(subsets)}
    found = {
        "from English": {subset for subset, (query, _) in pairs.items() if query == english},
        "into English": {subset for subset, (_, candidate) in pairs.items() if candidate == english},
        "without English": {subset for subset, pair in pairs.items() if english not in pair},
    }
    return {direction: members for direction, members in found.items() if members}
