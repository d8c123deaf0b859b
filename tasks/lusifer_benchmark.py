"""LUSIFER's benchmark: fourteen languages and a cross-lingual set, as mteb benchmarks, with the published scores.

The data are in ``lusifer_benchmark.tsv``, a row per language and data set: mteb's task, its split and subsets, its main
score, and what the paper's tables 6 to 19 (2 for the cross-lingual set) print for E5-Mistral and LUSIFER, in percent.
The paper counts 123 data sets; its tables name 124.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import TYPE_CHECKING

from xalign_models.errors import ResultsError
from xalign_models.evaluation.board import Board, Cell, Row

if TYPE_CHECKING:
    from xalign_models.evaluation.results import Results, TaskScores

PUBLISHED = ("E5-Mistral", "LUSIFER")
"""The paper's columns."""
_PEARSON = {"cosine_spearman": "cosine_pearson"}


@dataclass(frozen=True)
class DataSet:
    """A data set of a language.

    Attributes:
        name: As the paper calls it.
        task: As mteb does.
        split: Of mteb's task.
        metric: Its main score.
        subsets: Those that are scored; the data set's score is their mean.
        published: (column, percent).
    """

    name: str
    task: str
    split: str
    metric: str
    subsets: tuple[str, ...]
    published: tuple[tuple[str, float], ...]

    def score(self, table: TaskScores, metric: str) -> tuple[float, int] | None:
        """(mean over the subsets that there are, in percent; how many there are); None if there are none."""
        found = [
            scores[metric]
            for split, subset, _, scores in table.entries
            if split == self.split and subset in self.subsets and metric in scores
        ]
        return (100 * fmean(found), len(found)) if found else None


@cache
def data_sets() -> dict[str, tuple[DataSet, ...]]:
    """The data sets of each benchmark by its name, ``XAlign(LUSIFER, te)`` and the like."""
    found: dict[str, list[DataSet]] = {}
    with files(__package__).joinpath("lusifer_benchmark.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            published = tuple((column, float(row[column])) for column in PUBLISHED)
            one = DataSet(
                row["name"], row["task"], row["split"], row["metric"], tuple(row["subsets"].split(",")), published
            )
            found.setdefault(f"XAlign(LUSIFER, {row['language']})", []).append(one)
    return {name: tuple(members) for name, members in found.items()}


def board(results: Results, benchmark: str, models: Collection[str] | None = None) -> Board:
    """A benchmark's data sets x models, with the published scores beside.

    Similarity tasks have two rows: mteb's main score is Spearman's correlation, the paper says that its are Pearson's.

    Args:
        results: From :func:`xalign_models.evaluation.results.read_results`.
        benchmark: Its name.
        models: Names, with or without ``xalign/``, directories or hub ids; None is all that have any of it.

    Raises:
        ResultsError: There is no such benchmark, or no result of it.
    """
    from xalign_models.evaluation.leaderboard import choose_models  # slow to import, for the lists

    if benchmark not in data_sets():
        raise ResultsError(f"Unknown benchmark {benchmark!r}; there are {', '.join(data_sets())}.")
    members = data_sets()[benchmark]
    tasks = {one.task for one in members}
    having = sorted({model for model, task in results.tables if task in tasks})
    if not having:
        raise ResultsError(f'No results of {benchmark}; `xalign run --benchmark "{benchmark}" -m MODEL` makes them.')
    chosen = choose_models(having, models, f"{benchmark} and model")
    rows = {one: dict(_rows(results, one, chosen)) for one in members}
    mean: dict[str, Cell] = {}
    for model in chosen:
        found = [cell for one in members if (cell := rows[one][one.metric].cells.get(model))]
        if found:
            whole = len(found) == len(members) and all(cell.covered is None for cell in found)
            mean[model] = _cell(fmean(cell.score for cell in found), None if whole else (len(found), len(members)))
    for column in PUBLISHED:
        mean[_printed(column)] = Cell(fmean(dict(one.published)[column] for one in members))
    shown = [Row("", "mean", "mean", mean), *(row for one in members for row in rows[one].values())]
    return Board("data set", [*chosen, *map(_printed, PUBLISHED)], shown, _legend(shown))


def _cell(score: float, covered: tuple[int, int] | None, fitted: bool = False) -> Cell:
    return Cell(score, covered=covered and covered[0], of=covered and covered[1], fitted=fitted)


def _printed(column: str) -> str:
    return f"{column} [lusifer]"


def _rows(results: Results, one: DataSet, models: Collection[str]) -> Iterator[tuple[str, Row]]:
    """By metric, a data set's rows: its main score, and for similarity Pearson's correlation too."""
    last = _PEARSON.get(one.metric, one.metric)
    for metric in dict.fromkeys((one.metric, last)):
        cells = {}
        for model in models:
            table = results.tables.get((model, one.task))
            scored = one.score(table, metric) if table else None
            if table and scored:
                whole = scored[1] == len(one.subsets)
                cells[model] = _cell(scored[0], None if whole else (scored[1], len(one.subsets)), table.trained_on)
        if metric == last:
            cells |= {_printed(column): Cell(value) for column, value in one.published}
        name = f"{one.name} ({metric.removeprefix('cosine_').title()})" if one.metric in _PEARSON else one.name
        yield metric, Row("", name, name, cells)


def _legend(rows: Collection[Row]) -> list[str]:
    cells = [cell for row in rows for cell in row.cells.values()]
    lines = [
        "Main scores in percent, each the mean over the data set's subsets; mean: over the data sets, similarity by "
        "Spearman's correlation in ours.",
        "[lusifer]: as printed in the paper, which says that its correlations are Pearson's; its mean is ours of its "
        "rows.",
    ]
    if any(cell.covered is not None for cell in cells):
        lines.append("k/n: over k of n subsets, or data sets, that there are.")
    if any(cell.fitted for cell in cells):
        lines.append("†: the model was trained on text of this task's data set.")
    return lines
