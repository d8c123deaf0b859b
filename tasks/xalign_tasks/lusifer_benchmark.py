"""LUSIFER's benchmark: fourteen languages and a cross-lingual set, as mteb benchmarks, with the published scores.

``lusifer_benchmark.tsv`` has a row per language and data set: mteb's task, its split and subsets, its main score, and
the percentages in the paper's tables 6 to 19 (2 for the cross-lingual set) for E5-Mistral and LUSIFER.
The paper counts 123 data sets; its tables name 124.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from xalign_models.errors import ResultsError
from xalign_models.tables.board import Board, Cell, Row
from xalign_tasks.facts import rows

if TYPE_CHECKING:
    from xalign_models.results.reading import Results, TaskScores

PUBLISHED = ("E5-Mistral", "LUSIFER")
"""The paper's columns."""
PRINTED = tuple(f"{column} [lusifer]" for column in PUBLISHED)
"""The columns' names in boards."""
ALL = "XAlign(LUSIFER)"
"""The benchmark of all fourteen languages."""
ANY = "all data sets"
_PEARSON = {"cosine_spearman": "cosine_pearson"}


@dataclass(frozen=True)
class DataSet:
    """A data set of a language: its name and task type in the paper, and mteb's task, split and main score.

    Its score is the mean over the subsets; published scores are in percent, one for each of the paper's columns.
    """

    name: str
    category: str
    task: str
    split: str
    metric: str
    subsets: tuple[str, ...]
    published: tuple[float, ...]

    def cell(self, table: TaskScores, metric: str) -> Cell | None:
        """The mean over the scored subsets in percent; None without scored subsets."""
        scores = table.columns.get(metric, ())
        values = [
            float(score)
            for split, subset, score in zip(table.frame.splits, table.frame.subsets, scores, strict=False)
            if split == self.split and subset in self.subsets and score == score
        ]
        covered, of = (len(values), len(self.subsets)) if len(values) < len(self.subsets) else (None, None)
        return Cell(100 * fmean(values), covered=covered, of=of, fitted=table.trained_on) if values else None

    @property
    def printed(self) -> dict[str, Cell]:
        """The published scores by column of a board."""
        return {column: Cell(value) for column, value in zip(PRINTED, self.published, strict=True)}


@cache
def data_sets() -> dict[str, tuple[DataSet, ...]]:
    """The data sets of each benchmark by its name, ``XAlign(LUSIFER, te)`` and the like."""
    by_benchmark: dict[str, list[DataSet]] = {}
    for language, name, category, task, split, metric, *published, subsets in rows("lusifer_benchmark.tsv"):
        of_paper = tuple(map(float, published))
        data = DataSet(name, category, task, split, metric, tuple(subsets.split(",")), of_paper)
        by_benchmark.setdefault(f"XAlign(LUSIFER, {language})", []).append(data)
    return {name: tuple(members) for name, members in by_benchmark.items()}


def board(results: Results, benchmark: str, models: Collection[str] | None = None) -> Board:
    """A benchmark's data sets x models, next to the published scores.

    Similarity tasks have two rows: mteb's main score is Spearman's correlation, the paper reports Pearson's.

    Args:
        results: From :func:`xalign_models.results.reading.read_results`.
        benchmark: Name of the benchmark.
        models: Names, with or without ``xalign/``, directories or hub ids; None for all with any of its results.

    Raises:
        ResultsError: The benchmark is unknown or has no results.
    """
    if benchmark not in data_sets():
        raise ResultsError(f"Unknown benchmark {benchmark!r}; known are {', '.join(data_sets())}.")
    members = data_sets()[benchmark]
    chosen = _models(results, benchmark, members, models)
    by_data = {data: dict(_rows(results, data, chosen)) for data in members}
    columns = [*chosen, *PRINTED]
    cells = [{**by_data[data][data.metric].cells, **data.printed} for data in members]
    mean = Row("", "mean", "mean", _mean(cells, columns))
    shown = [mean, *(row for data in members for row in by_data[data].values())]
    return Board("data set", columns, shown, _legend(shown))


def overview(results: Results, benchmark: str, models: Collection[str] | None = None) -> Board:
    """Fourteen languages x models: over all data sets (the paper's table 1), then by type of task (figures 3 to 5).

    The arguments are those of :func:`board`; the benchmark is :data:`ALL`.

    Raises:
        ResultsError: The benchmark has no results.
    """
    languages = fourteen()
    chosen = _models(results, benchmark, [data for members in languages.values() for data in members], models)
    columns, shown = [*chosen, *PRINTED], list[Row]()
    for category in (ANY, *sorted({data.category for members in languages.values() for data in members})):
        of_category = list[Row]()
        for language, members in languages.items():
            if shared := [data for data in members if category in (ANY, data.category)]:
                scored = [{**dict(_rows(results, data, chosen))[data.metric].cells, **data.printed} for data in shared]
                of_category.append(Row(category, language, f"{category} {language}", _mean(scored, columns)))
        mean = _mean([row.cells for row in of_category], columns)
        shown += [Row(category, "mean", f"{category} mean", mean), *of_category]
    return Board("language", columns, shown, _legend(shown))


def fourteen() -> dict[str, tuple[DataSet, ...]]:
    """The data sets of each of the fourteen languages, by the paper's code of the language."""
    codes = {name.partition(", ")[2].rstrip(")"): members for name, members in data_sets().items()}
    return {code: members for code, members in codes.items() if len(code) == 2}


def _models(
    results: Results, benchmark: str, members: Collection[DataSet], models: Collection[str] | None
) -> list[str]:
    from xalign_models.boards.leaderboard import choose_models  # slow to import, for the lists

    tasks = {data.task for data in members}
    having = sorted({model for model, task in results.tables if task in tasks})
    if not having:
        raise ResultsError(
            f'No results of {benchmark}; make them with `xalign run --benchmark "{benchmark}" -m MODEL`.'
        )
    return choose_models(having, models, f"{benchmark} and model")


def _mean(scored: Collection[Mapping[str, Cell]], columns: Collection[str]) -> dict[str, Cell]:
    """By column, the mean of its cells, with their number if some are missing or incomplete."""
    mean: dict[str, Cell] = {}
    for column in columns:
        if cells := [row[column] for row in scored if column in row]:
            partial = len(cells) < len(scored) or any(cell.covered is not None for cell in cells)
            covered, of = (len(cells), len(scored)) if partial else (None, None)
            mean[column] = Cell(fmean(cell.score for cell in cells), covered=covered, of=of)
    return mean


def _rows(results: Results, data: DataSet, models: Collection[str]) -> Iterator[tuple[str, Row]]:
    """A data set's rows by metric: its main score and, for similarity tasks, Pearson's correlation."""
    last = _PEARSON.get(data.metric, data.metric)
    for metric in dict.fromkeys((data.metric, last)):
        cells = {}
        for model in models:
            table = results.tables.get((model, data.task))
            if table and (cell := data.cell(table, metric)):
                cells[model] = cell
        if metric == last:
            cells |= data.printed
        name = f"{data.name} ({metric.removeprefix('cosine_').title()})" if data.metric in _PEARSON else data.name
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
        lines.append("k/n: over k of n subsets or data sets.")
    if any(cell.fitted for cell in cells):
        lines.append("†: the model was trained on text of this task's data set.")
    return lines
