"""Functions that claims and tables of pages call: they read results, papers' tables, analyses and training logs.

Scores of results are in percent. Files of the papers, of analyses and of trainings keep their own unit.
"""

import csv
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from xalign_models.atlas import KINDS, load_atlas
from xalign_models.results.intervals import FEWEST, estimate
from xalign_models.results.items import Items
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import read_results

ROOT = Path(__file__).parents[2]
ANALYSES = "docs/results/analyses"

Function = TypeVar("Function", bound=Callable[..., Any])
_ITEMS = Items(MAIN)
SOURCES: dict[str, Any] = {"FEWEST": FEWEST}
"""Functions and constants of :func:`docs.tools.tables.evaluate`, by name."""


def source(function: Function) -> Function:
    """Register a source."""
    SOURCES[function.__name__] = function
    return function


@source
def numbers(path: str, column: str, /, **where: object) -> list[float]:
    """A column of a CSV file: the numbers of the rows whose columns have these values, or one of these in a tuple."""
    wanted = {key: {*map(str, value if isinstance(value, tuple) else (value,))} for key, value in where.items()}
    return [float(row[column]) for row in records(path) if all(row[key] in wanted[key] for key in wanted)]


@source
def cell(path: str, column: str, /, **where: object) -> float:
    """The number of a CSV file in the one row whose columns have these values."""
    values = numbers(path, column, **where)
    if len(values) != 1:
        raise LookupError(f"{path} has {len(values)} rows with {where}")
    return values[0]


def records(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file, by column."""
    return _content(ROOT / path)


@cache
def _content(path: Path) -> Any:
    """The rows of a CSV file by column, the entries of a file of JSON lines, or the content of a JSON file."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            return list(csv.DictReader(file))
        return [json.loads(line) for line in file] if path.suffix == ".jsonl" else json.load(file)


@source
def value(path: str, *keys: str | int) -> float:
    """A number of a JSON file, by the keys that lead to it."""
    content = _content(ROOT / path)
    for key in keys:
        content = content[key]
    return float(content)


_results = cache(read_results)


@source
def scores(
    model: str, task: str, subsets: str = ".*", *, languages: str = "", metric: str = MAIN, beside: Sequence[str] = ()
) -> dict[str, float]:
    """Scores of a model on a task in percent, by subset.

    Args:
        model: Its name; ``xalign/`` may be left out.
        task: Name of the task.
        subsets: Regular expression that a subset's whole name matches.
        languages: Codes such as ``"eng deu"``; subsets with another language are left out. Empty means all.
        metric: Name of the metric.
        beside: Other models; subsets that one of them lacks are left out.

    Raises:
        LookupError: No subset is left.
    """
    tables = [_results(ROOT).tables[f"xalign/{name.removeprefix('xalign/')}", task] for name in (model, *beside)]
    codes = set(languages.split())
    chosen = {
        subset: 100 * score
        for subset, score in tables[0].values(metric).items()
        if re.fullmatch(subsets, subset)
        and all(subset in table.frame.languages for table in tables)
        and (not codes or {code[:3] for code in tables[0].frame.languages[subset]} <= codes)
    }
    if not chosen:
        raise LookupError(f"{model} has no such subset of {task}")
    return chosen


@source
def score(model: str | Sequence[str], task: str, subsets: str = ".*", **options: Any) -> float:
    """The mean of :func:`scores`; the mean over models where there are several."""
    models = [model] if isinstance(model, str) else model
    return fmean(fmean(scores(name, task, subsets, **options).values()) for name in models)


@source
def sts17(model: str, pair: str) -> float:
    """A model's score on a pair of languages of STS17 that LiRA was scored on; ``mean`` is the mean over them."""
    return score(model, "STS17CrossLingual", "(en|ar|es)-\\1|en-ar|es-en|en-tr" if pair == "mean" else pair)


@source
def paired(model: str, other: str, task: str, subsets: str = ".*", **options: Any) -> tuple[float, float, float] | None:
    """The paired difference of two models' scores in points and its 95% interval.

    None if a score is no mean over sentences, or its sentences are not kept.
    """
    chosen = frozenset(scores(model, task, subsets, **options))
    tables = [_results(ROOT).tables[f"xalign/{name}", task] for name in (model, other)]
    ours, theirs = (
        _ITEMS.sample(table, chosen) if chosen <= table.frame.languages.keys() else None for table in tables
    )
    if model == other or ours is None or theirs is None:
        return None
    gap = ours - theirs
    interval = estimate(gap)
    return 100 * float(gap.shares.sum()), 100 * interval.low, 100 * interval.high


@source
def beside(model: str, other: str, task: str, subsets: str = ".*", **options: Any) -> str | None:
    """A score, and if there is one its paired difference from another model's; None without such a score."""
    try:
        mean = score(model, task, subsets, **options)
    except LookupError:
        return None
    gap = paired(model, other, task, subsets, **options)
    return f"{mean:.1f}" + ("" if gap is None else " ({:+.1f} [{:.1f}, {:.1f}])".format(*gap))


@source
def paper(table: str, /, **where: object) -> float:
    """The mean over rows of a paper's table in ``xalign_models/published``, in the unit of the table."""
    return fmean(numbers(f"xalign_models/published/{table}.csv", "value", **where))


@source
def analysis(table: str, column: str, /, **where: object) -> float:
    """A number of a table that ``xalign analyse`` wrote."""
    return cell(f"{ANALYSES}/{table}.csv", column, **where)


@source
def analyses(table: str, column: str, /, **where: object) -> list[float]:
    """Numbers of a table that ``xalign analyse`` wrote."""
    values = numbers(f"{ANALYSES}/{table}.csv", column, **where)
    if not values:
        raise LookupError(f"{table} has no row with {where}")
    return values


@source
def analysed(
    table: str, columns: Sequence[str] = ("score", "difference", "low", "high"), /, **where: object
) -> str | None:
    """A score of an analysis, and its paired difference with the 95% interval; None if the row is missing."""
    rows = list(zip(*(numbers(f"{ANALYSES}/{table}.csv", column, **where) for column in columns), strict=True))
    if not rows:
        return None
    ((score, gap, low, high),) = rows
    return f"{score:.1f}" + (f" ({gap:+.1f} [{low:.1f}, {high:.1f}])" if low < high else "")


@source
def coverages(least: int, most: int = 99, method: str = "board") -> list[float]:
    """Shares of intervals that cover the truth, of ``docs.tools.coverage``, for these numbers of languages."""
    counts = tuple(range(least, most + 1))
    return numbers("docs/results/coverage.csv", "coverage", method=method, languages=counts)


@source
def training(run: str, key: str, *, line: int = -1, kind: str | None = "epoch") -> Any:
    """The value of a key in a training's log, in the last line of this kind unless ``line`` names another."""
    logged = _content(ROOT / "docs" / "results" / "training" / run / "training_log.jsonl")
    return [entry for entry in logged if entry.get("kind") == kind][line][key]


@source
def size(pattern: str) -> int:
    """Bytes of the one file that matches a pattern."""
    (path,) = ROOT.glob(pattern)
    return path.stat().st_size


@source
def measured(page: str, row: str, column: str) -> float:
    """The number in a cell of a table in ``docs/results/throughput``, by the row's first cell."""
    return float(_measured(page, row, column).replace(",", ""))


@source
def ratio(row: str) -> str:
    """The ratio of processor time of a benchmark in cpu.md, with its spread."""
    return _measured("cpu.md", row, "ratio of processor time")


def _measured(page: str, row: str, column: str) -> str:
    header: list[str] = []
    for line in (ROOT / "docs" / "results" / "throughput" / page).read_text(encoding="utf-8").splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")] if line.startswith("|") else []
        header = cells if column in cells else header if cells else []
        if header and cells[0] == row:
            return cells[header.index(column)]
    raise LookupError(f"{page} has no row {row} with a column {column}")


@source
def finding(name: str) -> float:
    """A number behind a finding of the atlas."""
    from docs.tools.atlas_figures import findings

    return findings()[name]


@source
def published(model: str, task: str, language: str, kind: str) -> float:
    """A published mean in percent: a cell of the packaged table of public results."""
    column = load_atlas().column(task)
    return float(100 * column.scores[column.row[model], column.languages.index(language), KINDS.index(kind)])


@source
def published_sts17(model: str) -> float:
    """The published mean in percent over the six tracks of STS17 that the papers use."""
    kinds = {"same": ("arb-Arab", "spa-Latn", "eng-Latn"), "english_into": ("arb-Arab", "spa-Latn", "tur-Latn")}
    return fmean(published(model, "STS17", code, kind) for kind, codes in kinds.items() for code in codes)


@source
def held_out(part: str, of: str, measure: str) -> float:
    """A figure that ``docs.tools.choose_holdout`` wrote."""
    return cell("docs/results/atlas_holdout.csv", "value", part=part, of=of, measure=measure)
