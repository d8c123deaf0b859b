"""What the page shows, as plain data: the board, scores by language, pairs of languages, provenance, published numbers.

Scores by language are many: they travel as tenths of points, packed by task.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from langcodes import Language

from xalign_models import __version__
from xalign_models.atlas import Atlas
from xalign_models.errors import FileError
from xalign_models.evaluation.board import Board, Cell
from xalign_models.evaluation.leaderboard import DIRECTIONS, by_language, leaderboard
from xalign_models.evaluation.page.beside import atlas_data
from xalign_models.evaluation.page.packing import MISSING, pack
from xalign_models.evaluation.results import META, Results, TaskScores, language_pairs
from xalign_models.files import read_json, read_log
from xalign_models.published import published_on

MOST_LANGUAGES = 40
"""A task of more languages has no matrix of pairs: nobody could read it."""
MOST_PAIRS = 500_000
"""Values in all matrices; those of further tasks are left out, so that the page stays small."""
_RIGHT_TO_LEFT = {"Arab", "Hebr", "Thaa", "Nkoo", "Syrc", "Adlm", "Rohg"}
_BEFORE = "before_"


@dataclass
class _Values:
    """Blocks of scores, those of a task one after the other, and the names of their languages, each once."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    values: dict[int, list[np.ndarray[Any, np.dtype[np.int16]]]] = field(default_factory=lambda: defaultdict(list))
    labels: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        task: int,
        rows: Sequence[int],
        labels: Sequence[str],
        scores: Iterable[Iterable[float | None]],
        **about: Any,
    ) -> None:
        """Add a task's table of percentages, rows x labels, None being no score."""
        table = [[MISSING if score is None else round(10 * score) for score in row] for row in scores]
        known = [self.label(label) for label in labels]
        place = sum(block.size for block in self.values[task])
        self.blocks.append({"task": task, **about, "rows": list(rows), "labels": known, "at": place})
        self.values[task].append(np.asarray(table, dtype=np.int16))

    @property
    def size(self) -> int:
        """How many scores there are."""
        return sum(block.size for blocks in self.values.values() for block in blocks)

    def label(self, name: str) -> int:
        """The number of a language's or subset's name."""
        return self.labels.setdefault(name, len(self.labels))

    def packed(self) -> dict[str, str]:
        """The scores of each task, by the name of the element that holds them."""
        return {f"values-{task}": pack(blocks) for task, blocks in self.values.items()}


def page_data(
    results: Results,
    describe: Mapping[str, Mapping[str, Any]] | None = None,
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
    atlas: Atlas | None = None,
) -> dict[str, Any]:
    """Everything that the page shows, ready for JSON, and what is unpacked later under ``packed``.

    Args:
        results: From :func:`xalign_models.evaluation.results.read_results`.
        describe: By task, what is known of it: ``type``, ``domains``, ``description``, ``reference``.
        models: Names, with or without ``xalign/``, directories or hub ids; None is all.
        tasks: Names; None is all.
        atlas: Published scores to show beside the board and to choose models by; None shows none.

    Raises:
        ResultsError: There is no readable result, or a name has none.
    """
    board = leaderboard(results, models=models, tasks=tasks)
    position = {row.name: index for index, row in enumerate(board.rows)}
    names = [task for task in results.tasks if {task, *_directions(task)} & set(board.columns)]
    values, sources = _Values(), _Sources()
    published = []
    for number, task in enumerate(names):
        tables = {position[name]: results.tables[name, task] for name in position if (name, task) in results.tables}
        bases = {row: results.tables.get((table.baseline or "", task)) for row, table in tables.items()}
        plain = {row: base for row, base in bases.items() if base}
        _add_languages(values, number, task, tables, plain)
        _add_pairs(values, number, tables)
        published += _published(number, task, results, values)
    own = len(values.labels)
    beside, packed = (None, {}) if atlas is None else atlas_data(atlas, values.label)
    codes = Counter(label.partition("-")[0] for label in values.labels)
    several = {"zho"} | {code for code, count in codes.items() if count > 1}
    return {
        "made": datetime.now(tz=UTC).isoformat(timespec="minutes"),
        "version": __version__,
        "tasks": [{"name": task, **(describe or {}).get(task, {})} for task in names],
        "columns": [_column(column, names) for column in board.columns],
        "rows": [{"group": row.group, "label": row.label, "name": row.name} for row in board.rows],
        "cells": [_cells(board, results, names, index, sources) for index in range(len(board.rows))],
        "models": [json.loads(model) for model in sources.models],
        "machines": [json.loads(machine) for machine in sources.machines],
        "data": list(sources.data),
        "legend": list(board.legend),
        "own_labels": own,
        "labels": [_label(label, several) for label in values.labels],
        "blocks": values.blocks,
        "published": published,
        "atlas": beside,
        "packed": values.packed() | packed,
    }


def _column(column: str, tasks: Sequence[str]) -> dict[str, Any]:
    task = next(task for task in tasks if column == task or column in _directions(task))
    return {"name": column, "task": tasks.index(task)}


def _directions(task: str) -> list[str]:
    return [f"{task} {direction}" for direction in DIRECTIONS.get(task, {})]


class _Sources:
    """What made the results, each once: models with their revisions, machines with their versions, data revisions."""

    def __init__(self) -> None:
        self.models: dict[str, int] = {}
        self.machines: dict[str, int] = {}
        self.data: dict[str, int] = {}
        self._folders: dict[Path, tuple[str, dict[str, str]]] = {}

    def of(self, table: TaskScores) -> tuple[int, int, int, int]:
        """A result's model, machine and data revision, by their indices, and its date in minutes since 1970."""
        if table.folder not in self._folders:
            self._folders[table.folder] = json.dumps(_model(table)), _machines(table.folder)
        model, machines = self._folders[table.folder]
        machine = machines.get(table.task, "{}")
        return (
            self.models.setdefault(model, len(self.models)),
            self.machines.setdefault(machine, len(self.machines)),
            self.data.setdefault(str(table.dataset_revision), len(self.data)),
            round(table.date.timestamp() / 60),
        )


def _model(table: TaskScores) -> dict[str, Any]:
    """A model's revision, and what its metadata say of its size, licence and source."""
    meta = next(iter(_lines(table.folder / META)), {})
    fields = {"parameters": "n_parameters", "dimensions": "embed_dim", "licence": "license", "reference": "reference"}
    return {"revision": table.revision, **{name: meta.get(field) for name, field in fields.items()}}


def _machines(folder: Path) -> dict[str, str]:
    """By task, the hardware, the versions and the speed of its run, as JSON; of several runs, the last."""
    fields = ("hardware", "version", "tokens_per_second", "fit_seconds")
    return {
        str(entry.get("task")): json.dumps({field: entry.get(field) for field in fields})
        for entry in _lines(folder / "run_settings.jsonl")
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON, which may have one in each line; none if it is missing or damaged."""
    try:
        lines, damaged = read_log(path) if path.suffix == ".jsonl" else ([read_json(path)], 0)
    except FileError:
        return []
    return [] if damaged else lines


def _cells(board: Board, results: Results, tasks: Sequence[str], index: int, sources: _Sources) -> list[Any]:
    """A row's cells, by column; 0 where there is none."""
    row = board.rows[index]
    cells: list[Any] = []
    for column in board.columns:
        cell = row.cells.get(column)
        if cell is None:
            cells.append(0)
        else:
            table = results.tables[row.name, tasks[_column(column, tasks)["task"]]]
            cells.append([*_numbers(cell), *sources.of(table)])
    return cells


def _numbers(cell: Cell) -> list[Any]:
    flags = (cell.fitted, cell.other_text, cell.best, cell.tied, cell.significant is False, cell.significant is True)
    ranks = cell.ranks or (0, 0)
    ends = [None if value is None else round(value, 2) for value in (cell.difference, cell.low, cell.high)]
    bits = sum(flag << position for position, flag in enumerate(flags))
    return [round(cell.score, 2), *ends, bits, *ranks, cell.covered or 0, cell.of or 0]


def _add_languages(
    values: _Values, number: int, task: str, tables: Mapping[int, TaskScores], plain: Mapping[int, TaskScores]
) -> None:
    """For each heading, such as Into X, models x languages, and what the unaligned backbones have on the same subsets.

    The second block, of the kind ``plain``, has only the models whose subsets or text are not their backbone's.
    """
    found = {row: by_language(task, table.values()) for row, table in tables.items()}
    against = {
        row: _like_for_like(task, tables[row], base) for row, base in plain.items() if _differ(tables[row], base)
    }
    known = {subset: codes for table in tables.values() for subset, codes in table.languages.items()}

    def spoken(labels: Sequence[str]) -> list[list[int]]:
        """The one or two languages of each subset, such as ``ar-en``, that is not called after one itself."""
        codes = ([code for code in known.get(label, ()) if code != label] for label in labels)
        return [[values.label(code) for code in of_one] if len(of_one) < 3 else [] for of_one in codes]

    for heading in dict.fromkeys(heading for scores in found.values() for heading in scores):
        labels = sorted({label for scores in found.values() for label in scores.get(heading, ())} - {"mean"})
        for kind, by_row in (("languages", found), ("plain", against)):
            rows = [row for row in by_row if heading in found[row]]
            scores = ([_percent(by_row[row].get(heading, {}).get(label)) for label in labels] for row in rows)
            if rows:
                values.add(number, rows, labels, scores, kind=kind, heading=heading, spoken=spoken(labels))


def _differ(table: TaskScores, base: TaskScores) -> bool:
    return table.dataset_revision != base.dataset_revision or table.values().keys() != base.values().keys()


def _like_for_like(task: str, table: TaskScores, base: TaskScores) -> dict[str, dict[str, float]]:
    """The backbone's scores by language over the model's subsets; none if it lacks one or was scored on other text."""
    theirs = base.values()
    if table.dataset_revision != base.dataset_revision or not table.values().keys() <= theirs.keys():
        return {}
    return by_language(task, {subset: theirs[subset] for subset in table.values()})


def _percent(score: float | None) -> float | None:
    return None if score is None else 100 * score


def _add_pairs(values: _Values, number: int, tables: Mapping[int, TaskScores]) -> None:
    """Matrices, a row per model: queries x candidates, and the same before a rotation where the task has both."""
    pairs = language_pairs({subset for table in tables.values() for subset in table.values()}) or {}
    labels = sorted({language for pair in pairs.values() for language in pair})
    wanted = len(tables) * len(labels) ** 2
    if not 2 < len(labels) <= MOST_LANGUAGES or values.size + wanted > MOST_PAIRS:
        return
    shown = [label.replace("_", "-") for label in labels]
    for heading, metric in (("after", "main_score"), ("before", _before(tables))):
        scores = {row: table.values(metric) for row, table in tables.items() if metric and table.values(metric)}
        if scores:
            rows = list(scores)
            matrices = ([_percent(scores[row].get(f"{a}-{b}")) for a in labels for b in labels] for row in rows)
            values.add(number, rows, shown, matrices, kind="pairs", heading=heading)


def _before(tables: Mapping[int, TaskScores]) -> str:
    """The metric that stands for the main score before a rotation: ``before_precision_at_5``; empty without one."""
    for table in tables.values():
        main = table.values()
        for metric in sorted(table.metrics):
            if metric.startswith("after_") and table.values(metric) == main:
                return _BEFORE + metric.removeprefix("after_")
    return ""


def _published(number: int, task: str, results: Results, values: _Values) -> list[dict[str, Any]]:
    from xalign_models.evaluation.leaderboard import published_columns

    tables = [table for (_, name), table in results.tables.items() if name == task]
    rows = {"mean"}.union(*(scores for table in tables for scores in by_language(task, table.values()).values()))
    columns = published_columns(list(published_on(task)), tables, "main_score", rows)
    return [
        {
            "task": number,
            "column": column,
            "mean": scores.get("mean"),
            "scores": [[values.label(label), round(score, 2)] for label, score in scores.items() if label != "mean"],
        }
        for column, scores in columns.items()
    ]


def _label(label: str, several: Collection[str]) -> list[str]:
    """Code, English name, own name, direction and language tag of a language; other labels have no name.

    The names say the script where it is one of ``several`` languages that are here in more than one script.
    """
    code, _, script = label.partition("-")
    if not (len(code) == 3 and len(script) == 4):
        return [label]
    language = Language.get(label if code in several else code)
    right = "rtl" if script in _RIGHT_TO_LEFT else "ltr"
    name = language.display_name().removesuffix(" (individual language)")
    return [label, name, language.autonym(), right, language.to_tag()]
