"""The page's content as plain data: board, scores by language, language pairs, provenance, published numbers.

The many scores by language are stored as tenths of points, packed by task.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from langcodes import Language

from xalign_models import __version__
from xalign_models.atlas import Atlas
from xalign_models.atlas.table import scaled
from xalign_models.boards.leaderboard import DIRECTIONS, by_language, leaderboard, published_columns
from xalign_models.errors import ResultsError
from xalign_models.files import read_log
from xalign_models.page.beside import atlas_data
from xalign_models.page.outcomes import outcomes_data
from xalign_models.page.packing import THOUSAND, Numbered, pack
from xalign_models.results.languages import language_pairs
from xalign_models.results.layout import SETTINGS
from xalign_models.results.reading import Results, TaskScores
from xalign_models.tables.board import MARKS, Board, Cell, Evidence

MOST_LANGUAGES = 40
"""Maximum number of languages of a matrix of pairs; larger ones are unreadable."""
MOST_PAIRS = 500_000
"""Maximum number of values in all matrices; further tasks get none, so that the page stays small."""
_RIGHT_TO_LEFT = {"Arab", "Hebr", "Thaa", "Nkoo", "Syrc", "Adlm", "Rohg"}


@dataclass
class _Values:
    """Blocks of scores, packed by their place, the distinct names of their languages, and the number of scores."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    packed: dict[str, str] = field(default_factory=dict)
    labels: Numbered = field(default_factory=Numbered)
    size: int = 0

    def add(self, rows: Mapping[int, Iterable[float | None]], labels: Sequence[str], **about: Any) -> None:
        """Add a task's table of scores (rows x labels); None is no score."""
        label_numbers = [self.labels[label] for label in labels]
        name = f"values-{len(self.blocks)}"
        self.blocks.append({**about, "rows": list(rows), "labels": label_numbers, "name": name})
        table = np.array([[*row] for row in rows.values()], dtype=np.float64)
        self.packed[name] = pack([scaled(table, THOUSAND)])
        self.size += table.size


def page_data(
    results: Results,
    describe: Mapping[str, Mapping[str, Any]] | None = None,
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
    atlas: Atlas | None = None,
) -> dict[str, Any]:
    """The page's content, ready for JSON, with packed numbers under ``packed``.

    The arguments and errors are those of :func:`xalign_models.page.write_page`.
    """
    boards = _boards(results, models, tasks)
    main = next(iter(boards.values()))
    rows = [(board, row) for board in boards.values() for row in board.rows]
    first: dict[str, int] = {}
    for index, (_, row) in enumerate(rows):
        first.setdefault(row.name, index)
    shown = {column for board in boards.values() for column in board.columns}
    names = [task for task in results.tasks if shown & {task, *_directions(task)}]
    task_of = {column: task for task in names for column in (task, *_directions(task)) if column in shown}
    values = _Values()
    with_items: dict[int, dict[int, TaskScores]] = {}
    published = []
    for number, task in enumerate(names):
        tables = {index: results.tables[name, task] for name, index in first.items() if (name, task) in results.tables}
        with_items[number] = {index: table for index, table in tables.items() if rows[index][0] is main}
        bases = ((row, results.tables.get((table.baseline or "", task))) for row, table in tables.items())
        plain = {row: base for row, base in bases if base}
        _add_languages(values, number, task, tables, plain)
        _add_pairs(values, number, tables)
        common = {subset for column in (task, *_directions(task)) for subset in main.common.get(column, ())}
        published += _published(number, task, results, values, common)
    origins = {
        folder: (_model(folder.name, results.metadata.get(folder, {})), _machines(folder))
        for folder in {table.folder for table in results.tables.values()}
    }
    cells = [
        [
            _cell(row.cells[column], results.tables[row.name, task], origins) if column in row.cells else None
            for column, task in task_of.items()
        ]
        for _, row in rows
    ]
    items, bits = outcomes_data(with_items, values.labels)
    own_labels = len(values.labels)
    beside, packed = (None, {}) if atlas is None else atlas_data(atlas, values.labels)
    codes = Counter(label.partition("-")[0] for label in values.labels)
    several = {"zho"} | {code for code, count in codes.items() if count > 1}
    baselines = {model: table.baseline or model for (model, _), table in results.tables.items()}
    return {
        "made": datetime.now(tz=UTC).isoformat(timespec="minutes"),
        "version": __version__,
        "tasks": [{"name": task, **(describe or {}).get(task, {})} for task in names],
        "columns": [
            {
                "name": column,
                "task": names.index(task),
                "shared": [len(board.common.get(column, ())) for board in boards.values()],
                "all": max(len(table.values()) for (_, name), table in results.tables.items() if name == task)
                // (len(_directions(task)) or 1),
            }
            for column, task in task_of.items()
        ],
        "rows": [
            {
                **{name: getattr(row, name) for name in ("group", "label", "name", "prompt", "apart")},
                "note": next(
                    (line for line in board.legend if row.apart and line.startswith(row.group.capitalize())), ""
                ),
                "board": list(boards.values()).index(board),
                "first": first[row.name],
                "base": first.get(baselines[row.name], -1),
            }
            for board, row in rows
        ],
        "tests": list(map(str, Evidence)),
        "cells": cells,
        "legend": [[title, list(board.legend)] for title, board in boards.items()],
        "own_labels": own_labels,
        "labels": [_label(label, several) for label in values.labels],
        "blocks": values.blocks,
        "published": published,
        "items": items,
        "atlas": beside,
        "packed": values.packed | bits | packed,
    }


def _boards(results: Results, models: Collection[str] | None, tasks: Collection[str] | None) -> dict[str, Board]:
    """The boards of models and of studies, by title; all rows are models where the user chose them."""
    if models is not None:
        return {"Models": leaderboard(results, models=models, tasks=tasks)}
    boards = {}
    for title, study in (("Models", False), ("Studies", True)):
        with suppress(ResultsError):
            boards[title] = leaderboard(results, tasks=tasks, study=study)
    return boards or {"Models": leaderboard(results, tasks=tasks)}


def _directions(task: str) -> list[str]:
    return [f"{task} {direction}" for direction in DIRECTIONS.get(task, {})]


def _cell(cell: Cell, table: TaskScores, origins: Mapping[Path, tuple[Any, Mapping[str, Any]]]) -> dict[str, Any]:
    """A cell and where it comes from, by its folder; what is absent, zero or false is left out."""
    model, machines = origins[table.folder]
    values = {
        **{name: getattr(cell, name) for name in ("ranks", "covered", "of", "fitted", "other_text", "best", "tied")},
        "interval": None if cell.low is None else (cell.low, cell.high),
        "score_interval": None if cell.score_low is None else (cell.score_low, cell.score_high),
    }
    always = {name: getattr(cell, name) for name in ("score", "difference", "same")}
    return {
        **{name: None if value is None else _brief(value) for name, value in always.items()},
        **{name: _brief(value) for name, value in values.items() if value},
        "mark": MARKS[cell.test] if cell.test else "",
        "verdict": str(cell.test or ""),
        "model": model,
        "machine": machines.get(table.task, {}),
        "data": str(table.dataset_revision),
        "date": f"{table.date.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _machines(folder: Path) -> dict[str, dict[str, Any]]:
    """Hardware, versions and speed of each task's last run."""
    known = ("hardware", "tokens_per_second", "fit_seconds_per_language")
    lines, damaged = read_log(folder / SETTINGS)
    return {
        str(entry.get("task")): {key: entry.get(key) for key in known} | {"versions": entry.get("version")}
        for entry in ([] if damaged else lines)
    }


def _model(revision: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """A model's revision, size, licence and source."""
    known = {"parameters": "n_parameters", "dimensions": "embed_dim", "licence": "license", "reference": "reference"}
    return {"revision": revision, **{name: meta.get(key) for name, key in known.items()}}


def _brief(value: Any) -> Any:
    """A value in few characters: numbers have two decimals, or one where a browser would round a last 5 otherwise."""
    if isinstance(value, tuple):
        return [_brief(part) for part in value]
    if not isinstance(value, float):
        return int(value)
    text = f"{value:.2f}"
    return float(f"{value:.1f}" if text.endswith("5") else text)


def _add_languages(
    values: _Values, number: int, task: str, tables: Mapping[int, TaskScores], plain: Mapping[int, TaskScores]
) -> None:
    """Add models x languages for each heading, such as Into X, and the unaligned backbones' scores on the same subsets.

    The second block, of kind ``plain``, only has models whose subsets or text differ from their backbone's.
    """
    scores_by_row = {row: by_language(task, table.values()) for row, table in tables.items()}
    likes = {row: _like_for_like(task, tables[row], base) for row, base in plain.items()}
    against = {row: scores for row, scores in likes.items() if scores is not None}
    spoken_by_subset = {subset: codes for table in tables.values() for subset, codes in table.frame.languages.items()}

    def spoken(labels: Sequence[str]) -> list[list[int]]:
        """The one or two languages of each subset, such as ``ar-en``, that is not named after a language."""
        codes = ([code for code in spoken_by_subset.get(label, ()) if code != label] for label in labels)
        return [[values.labels[code] for code in of_one] if len(of_one) < 3 else [] for of_one in codes]

    for heading in dict.fromkeys(heading for scores in scores_by_row.values() for heading in scores):
        labels = sorted({label for scores in scores_by_row.values() for label in scores.get(heading, ())} - {"mean"})
        for kind, by_row in (("languages", scores_by_row), ("plain", against)):
            rows = {
                row: map(scores.get(heading, {}).get, labels)
                for row, scores in by_row.items()
                if heading in scores_by_row[row]
            }
            if rows:
                values.add(rows, labels, task=number, kind=kind, heading=heading, spoken=spoken(labels))


def _like_for_like(task: str, table: TaskScores, base: TaskScores) -> dict[str, dict[str, float]] | None:
    """The backbone's scores by language over the model's subsets; empty if it lacks a subset or has other text.

    None if both have the same subsets of the same text, so that the backbone's own scores compare.
    """
    baseline, subsets = base.values(), table.values().keys()
    if table.text != base.text or not subsets <= baseline.keys():
        return {}
    return None if subsets == baseline.keys() else by_language(task, {name: baseline[name] for name in subsets})


def _add_pairs(values: _Values, number: int, tables: Mapping[int, TaskScores]) -> None:
    """Add matrices of queries x candidates, a row per model, also before a rotation if the task has one."""
    pairs = language_pairs({subset for table in tables.values() for subset in table.values()}) or {}
    labels = sorted({language for pair in pairs.values() for language in pair})
    count = len(tables) * len(labels) ** 2
    if not 2 < len(labels) <= MOST_LANGUAGES or values.size + count > MOST_PAIRS:
        return
    shown, subsets = [label.replace("_", "-") for label in labels], [f"{a}-{b}" for a in labels for b in labels]
    for heading, metric in (("after", "main_score"), ("before", _before(tables))):
        rows = {row: map(scores.get, subsets) for row, table in tables.items() if (scores := table.values(metric))}
        if rows:
            values.add(rows, shown, task=number, kind="pairs", heading=heading)


def _before(tables: Mapping[int, TaskScores]) -> str:
    """The main score's metric before a rotation, e.g. ``before_precision_at_5``; empty without one."""
    for table in tables.values():
        for metric in sorted(table.columns):
            if metric.startswith("after_") and table.values(metric) == table.values():
                return f"before_{metric.removeprefix('after_')}"
    return ""


def _published(
    number: int, task: str, results: Results, values: _Values, common: Collection[str]
) -> list[dict[str, Any]]:
    """The printed columns of a task, with their means over the languages of the board, where these are printed."""
    tables = [table for (_, name), table in results.tables.items() if name == task]
    covered = {tuple(table.values()) for table in tables}
    rows = {"mean"}.union(
        *(of for subsets in covered for of in by_language(task, dict.fromkeys(subsets, 0.0)).values())
    )
    shared = by_language(task, dict.fromkeys(common, 0.0))
    entries = []
    for column, scores in published_columns(task, tables, "main_score", rows).items():
        labels = next((set(of) - {"mean"} for heading, of in shared.items() if column.endswith(heading)), set())
        mean = scores.get("mean") if labels == rows - {"mean"} else None
        if labels and labels <= scores.keys():
            mean = fmean(scores[label] for label in labels)
        kept = [[values.labels[label], round(score, 2)] for label, score in scores.items() if label != "mean"]
        entries.append({"task": number, "column": column, "mean": mean, "scores": kept})
    return entries


def _label(label: str, several: Collection[str]) -> list[str]:
    """Code, English name, own name, direction and language tag of a language; other labels have no name.

    Names include the script for languages in ``several``, which occur in more than one script.
    """
    code, _, script = label.partition("-")
    if not (len(code) == 3 and len(script) == 4):
        return [label]
    language = Language.get(label if code in several else code)
    right = "rtl" if script in _RIGHT_TO_LEFT else "ltr"
    name = language.display_name().replace(" (individual language)", "")
    return [label, name, language.autonym(), right, language.to_tag()]
