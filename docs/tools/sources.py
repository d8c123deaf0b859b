"""Functions that claims and tables of pages call: they read results, papers' tables, analyses and training logs.

Scores of results are in percent. Files of the papers, of analyses and of trainings keep their own unit.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from xalign_models.languages import display_name
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import Results, read_results

ROOT = Path(__file__).parents[2]
ANALYSES = "docs/results/analyses"

ARITHMETIC = {f.__name__: f for f in (abs, all, any, fmean, len, log, map, max, min, range, round, str, sum, zip)}
SOURCES: dict[str, Any] = {}
"""Functions and constants of an expression, by name."""


def evaluate(expression: str, variables: Mapping[str, Any] | None = None) -> Any:
    """The value of a Python expression over :data:`SOURCES`, arithmetic, and these variables; no other builtins."""
    names = {"__builtins__": {}, **SOURCES, **ARITHMETIC, **(variables or {})}
    return eval(" ".join(expression.split()), names)  # from the repository's own pages and tables


def source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a source."""
    SOURCES[function.__name__] = function
    return function


@source
def numbers(path: str, column: str, /, **where: object) -> list[float]:
    """A column of a CSV file: the numbers of the rows whose columns have these values, or one of these in a tuple."""
    return [
        float(row[column])
        for row in records(path)
        if all(
            row[key] in map(str, wanted if isinstance(wanted, tuple) else (wanted,)) for key, wanted in where.items()
        )
    ]


@source
def cell(path: str, column: str, /, **where: object) -> float:
    """The number of a CSV file in the one row whose columns have these values."""
    values = numbers(path, column, **where)
    if len(values) != 1:
        raise LookupError(f"{path} has {len(values)} rows with {where}")
    return values[0]


def records(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file, by column."""
    return _records(ROOT / path)


@cache
def _records(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@source
def value(path: str, *keys: str | int) -> float:
    """A number of a JSON file, by the keys that lead to it."""
    content = _json(ROOT / path)
    for key in keys:
        content = content[key]
    return float(content)


@cache
def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def _results(root: Path) -> Results:
    return read_results(root)


@source
def scores(
    model: str,
    task: str,
    subsets: str = ".*",
    *,
    languages: str = "",
    metric: str = MAIN,
    beside: Sequence[str] = (),
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
        and all(subset in table.languages for table in tables)
        and (not codes or {code[:3] for code in tables[0].languages[subset]} <= codes)
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
def falling(*values: float) -> bool:
    """Whether each value is greater than the next."""
    return all(first > second for first, second in itertools.pairwise(values))


@source
def by_method(task: str, backbone: str, *methods: str, **options: Any) -> list[float]:
    """:func:`score` of a backbone's alignments, over the subsets that all of them have."""
    names = [f"{method}__{backbone}" for method in methods]
    return [score(name, task, beside=names, **options) for name in names]


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
def language_at(accuracies: Mapping[str, float], accuracy: float) -> str:
    """The language of the subset, such as ``deu_Latn-eng_Latn``, that has this accuracy, and the accuracy."""
    subsets = [subset for subset, value in accuracies.items() if value == accuracy]
    language = display_name(subsets[0].split("-")[0].replace("_", "-")) if len(subsets) == 1 else "several"
    return f"{language} {accuracy:.1f}"


@source
def gaining(**where: object) -> str:
    """In how many languages all four measures of a map gain: "3 of 5"."""
    measures = (analyses("linear-mapping-gains", column, **where) for column in ("dD", "dC", "fD", "fC"))
    gains = [dd > 0 and dc > 0 and fd > 0.5 and fc > 0.5 for dd, dc, fd, fc in zip(*measures, strict=True)]
    return f"{sum(gains)} of {len(gains)}"


def _choices(model: str) -> list[dict[str, str]]:
    return [row for row in records(f"{ANALYSES}/choices-choices.csv") if row["model"] == model]


@source
def chosen_alignments(model: str) -> list[str]:
    """The alignments that ``xalign analyse choices`` chose for a model, by seed, under their registered names."""
    return [row["alignment"].replace(" shrink=1.0", "-shrunk") for row in _choices(model) if row["chosen"] == "True"]


@source
def by_frequency(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, the most frequent first."""
    return dict(Counter(values).most_common())


@source
def recommended_gaps(*backbones: str) -> list[float]:
    """For each backbone, the largest distance of a chosen alignment's mean score from the best candidate's."""
    gaps = []
    for backbone in backbones:
        rows = _choices(f"xalign/plain__{backbone}")
        by_alignment = {
            name: fmean(float(row["score"]) for row in rows if row["alignment"] == name)
            for name in {row["alignment"] for row in rows}
        }
        chosen = {row["alignment"] for row in rows if row["chosen"] == "True"}
        gaps.append(max(by_alignment.values()) - min(by_alignment[name] for name in chosen))
    return gaps


BOARD = {
    "Tatoeba": "Tatoeba36",
    "FLORES": "FloresPrecision",
    "XQuAD-R": "XQuAD-R",
    "STS17": "STS17CrossLingual",
    "SIB-200": "SIB200ZeroShot",
    "tweets": "TweetSentimentZeroShot",
    "products": "ProductSearchStandIn",
}
"""Tasks by their short names."""
COMPOSED = ("procrustes-shrunk", "centered+procrustes-shrunk", "lsar+procrustes-shrunk", "centered+affine")
"""Alignments of which only the means are committed."""
SOURCES |= {"BOARD": BOARD, "COMPOSED": COMPOSED}
_ROWS = ("plain", "centered", "lir-1", "lir-15", "lsar", "procrustes", "affine", *COMPOSED)


@source
def mean(method: str, backbone: str, task: str) -> float:
    """A method's mean on a task in percent, also where only the mean is committed."""
    model = f"{method}__{backbone}"
    if method not in COMPOSED:
        return score(model, task)
    return analysis("compositions", "score", model=f"xalign/{model}", task=task, language="mean")


@source
def points_under_best(method: str, backbone: str, task: str) -> float:
    """The distance of a method from the best one of its space, in points."""
    return max(mean(row, backbone, task) for row in _ROWS) - mean(method, backbone, task)


@source
def good_everywhere(backbone: str) -> list[str]:
    """Methods within half a point of the best on three retrieval tasks, and at most that far below plain elsewhere."""
    return [
        row
        for row in _ROWS
        if all(points_under_best(row, backbone, BOARD[task]) <= 0.5 for task in ("Tatoeba", "FLORES", "XQuAD-R"))
        and all(mean("plain", backbone, task) - mean(row, backbone, task) <= 0.5 for task in BOARD.values())
    ]


@source
def training(run: str, key: str, *, line: int = -1, kind: str | None = "epoch") -> Any:
    """The value of a key in a training's log, in the last line of this kind unless ``line`` names another."""
    path = ROOT / "docs" / "results" / "training" / run / "training_log.jsonl"
    logged = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return [entry for entry in logged if entry.get("kind") == kind][line][key]


@source
def size(pattern: str) -> int:
    """Bytes of the one file that matches a pattern."""
    (path,) = ROOT.glob(pattern)
    return path.stat().st_size


@source
def measured(page: str, row: str, column: str) -> float:
    """A cell of a table in ``docs/results/throughput``, by the row's first cell."""
    header: list[str] = []
    for line in (ROOT / "docs" / "results" / "throughput" / page).read_text(encoding="utf-8").splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")] if line.startswith("|") else []
        header = cells if column in cells else header if cells else []
        if header and cells[0] == row:
            return float(cells[header.index(column)].replace(",", ""))
    raise LookupError(f"{page} has no row {row} with a column {column}")


@source
def finding(name: str) -> float:
    """A number behind a finding of the atlas."""
    from docs.tools.atlas_figures import findings

    return findings()[name]


@source
def published(model: str, task: str, language: str, kind: str) -> float:
    """A published mean in percent: a cell of the packaged table of public results."""
    from xalign_models.atlas import KINDS, load_atlas

    column = load_atlas().column(task)
    return float(100 * column.scores[column.row[model], column.languages.index(language), KINDS.index(kind)])


@source
def published_sts17(model: str) -> float:
    """The published mean in percent over the six tracks of STS17 that the papers use."""
    tracks = (
        "arb-Arab same",
        "arb-Arab english_into",
        "spa-Latn same",
        "spa-Latn english_into",
        "eng-Latn same",
        "tur-Latn english_into",
    )
    return fmean(published(model, "STS17", *track.split()) for track in tracks)


@source
def held_out(name: str) -> float:
    """A figure of ``docs.tools.choose_holdout`` where `choose` is asked for the kind of the held-out task."""
    return _held_out()[name]


@cache
def _held_out() -> dict[str, float]:
    from docs.tools.choose_holdout import held_out, summary
    from xalign_models.atlas import load_atlas

    return summary(list(held_out(load_atlas(), by_kind=True)))
