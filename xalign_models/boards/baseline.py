"""``results/baseline.json``: scores to keep up, with tolerances; validated when read."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from xalign_models.boards.leaderboard import choose, choose_models
from xalign_models.errors import FileError, ResultsError, plain
from xalign_models.files import MOST_JSON, read_bytes
from xalign_models.paths import atomic_write_text
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import Frame, Results, TaskScores, read_results
from xalign_models.tables.escaping import escape

Valid = TypeVar("Valid")
Points = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, strict=True)]
Percent = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False, strict=True)]

DEFAULT = "default"
LANGUAGES = "languages"
"""Name of the tolerance that languages beside a mean have at least."""
TOLERANCE = 1.0
"""Default tolerance: points that a score may fall."""
_TOLERANCES = TypeAdapter(dict[str, Points])


class BaselineEntry(BaseModel):
    """A result: revision and splits of its text (files of earlier versions lack the splits), and scores in percent."""

    model_config = ConfigDict(extra="forbid")
    dataset_revision: str | None
    split: str = ""
    scores: dict[str, Percent] = Field(min_length=1)


class Baseline(BaseModel):
    """The whole file: tolerance in points, ``default``, ``languages`` or by task; results by model and task."""

    model_config = ConfigDict(extra="forbid")
    tolerance: dict[str, Points]
    scores: dict[str, dict[str, BaselineEntry]]


@dataclass(frozen=True)
class Before:
    """Old scores, with outcomes by item if they come from a folder, and the tolerances in points as in a baseline."""

    results: Results
    tolerance: Mapping[str, float]


def read_before(path: Path, tolerances: Collection[str] = ()) -> Before:
    """Read old results: a folder that ``xalign run`` wrote, or a baseline file.

    ``tolerances`` (``POINTS`` or ``TASK=POINTS``) override those of the file.

    Raises:
        ResultsError: The path does not exist, results or a tolerance are malformed, or that of languages has no effect.
    """
    overrides = parse_tolerances(tolerances)
    if path.is_dir():
        return Before(read_results(path), _merged({}, overrides))
    baseline = read_baseline(path)
    tables = {
        (model, task): TaskScores(
            model=model,
            revision="",
            task=task,
            dataset_revision=entry.dataset_revision,
            trained_on=False,
            baseline=None,
            date=datetime.now(UTC),
            folder=path.parent / "baseline",
            frame=Frame((entry.split,) * len(entry.scores), tuple(entry.scores), ((),) * len(entry.scores)),
            columns={MAIN: np.array([percent / 100 for percent in entry.scores.values()])},
        )
        for model, tasks in baseline.scores.items()
        for task, entry in tasks.items()
    }
    return Before(Results(path, tables, {}), _merged(baseline.tolerance, overrides))


def parse_tolerances(texts: Collection[str]) -> dict[str, float]:
    """``POINTS`` (for ``default``) and ``TASK=POINTS`` as points by task.

    Raises:
        ResultsError: A tolerance is not a number from 0 to 100, or is given twice.
    """
    parts = [text.rpartition("=") for text in texts]
    if twice := [name for name, times in Counter(name or DEFAULT for name, _, _ in parts).items() if times > 1]:
        raise ResultsError(f"--tolerance gives {escape(twice[0])} twice. Give it once, with a point in decimals: 0.5.")
    numbers = {"".join(part): _number(part[2]) for part in parts}
    points = _valid(_TOLERANCES.validate_python, numbers, "--tolerance", "A tolerance is 0 to 100 points.")
    return {name or DEFAULT: number for (name, _, _), number in zip(parts, points.values(), strict=True)}


def _merged(kept: Mapping[str, float], given: Mapping[str, float]) -> dict[str, float]:
    """Tolerances of a file and of the command, which count more; ``languages`` below all others would do nothing."""
    merged = {DEFAULT: TOLERANCE, **kept, **given}
    if LANGUAGES in given and min(merged, key=merged.__getitem__) == LANGUAGES:
        raise ResultsError(
            f"--tolerance languages={given[LANGUAGES]:g} has no effect below the default of {merged[DEFAULT]:g}. "
            "Give languages more points, or lower the default."
        )
    return merged


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def read_baseline(path: Path) -> Baseline:
    """The baseline at ``path``.

    Raises:
        ResultsError: The file is missing or no baseline; the message names the first wrong field.
    """
    try:
        content = read_bytes(path, MOST_JSON).removeprefix(codecs.BOM_UTF8)
    except FileError as error:
        if path.exists():
            raise ResultsError(f"The baseline: {error}") from None
        raise ResultsError(
            f"No old results at {path}: name a folder that `xalign run` wrote, or write a baseline "
            "with `xalign gate --update`."
        ) from None
    baseline = _valid(Baseline.model_validate_json, content, str(path), "`xalign gate --update` writes a new baseline.")
    json.loads(content, object_pairs_hook=partial(_once, path))
    return baseline


def _once(path: Path, pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object that names a key twice, of which JSON's readers take the last."""
    if twice := [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]:
        raise ResultsError(f"{path}: {escape(', '.join(twice))} is listed more than once. Keep one of them.")


def _valid(validate: Callable[[Any], Valid], value: object, name: str, remedy: str) -> Valid:
    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        location = escape(" / ".join(map(str, first["loc"])))
        actual = "" if isinstance(first["input"], dict | bytes) else f", not {first['input']!r:.60}"
        raise ResultsError(
            f"{name}{': ' if location else ''}{location}: {plain(first['msg'])}{actual}. {remedy}"
        ) from None


def make_baseline(
    results: Results, models: Collection[str] | None = None, tasks: Collection[str] | None = None
) -> Baseline:
    """The baseline of some models (by any name that ``xalign run`` takes) and tasks, or of all.

    Raises:
        ResultsError: A name has no results, or one of the chosen results is unreadable, has an impossible score or
            several revisions.
    """
    keys = {*results.tables, *results.unreadable}
    names, task_names = sorted({model for model, _ in keys}), sorted({task for _, task in keys})
    chosen = set(product(choose_models(names, models), choose(task_names, tasks, "task")))
    broken = [str(path) for key, path in results.unreadable.items() if key in chosen]
    broken += [
        f"{model} on {task} has the revisions {', '.join(results.several[model, task])}"
        for model, task in sorted(results.several.keys() & chosen)
    ]
    scores: dict[str, dict[str, BaselineEntry]] = {}
    for (model, task), table in results.tables.items():
        if (model, task) not in chosen:
            continue
        broken += [f"{model} on {task}, {subset}: {reason}" for subset, reason in table.impossible.items()]
        if values := table.values():
            percent = {subset: round(100 * max(-1, min(value, 1)), 7) for subset, value in sorted(values.items())}
            revision, split = table.text
            entry = BaselineEntry(dataset_revision=revision, split=split, scores=percent)
            scores.setdefault(model, {})[task] = entry
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        remedy = "score them again with `xalign run`, or remove a revision"
        raise ResultsError(f"A baseline needs usable results: {'; '.join(broken[:3])}{more}; {remedy}.")
    return Baseline(tolerance={DEFAULT: TOLERANCE}, scores=scores)


def write_baseline(path: Path, baseline: Baseline, tolerance: Mapping[str, float]) -> None:
    """Write a baseline; an existing file keeps its other scores and all tolerances that are not given.

    Raises:
        ResultsError: The existing file is not a baseline, a tolerance names no task of either, or that of languages has
            no effect.
    """
    old = read_baseline(path) if path.exists() else Baseline(tolerance={}, scores={})
    scores = {
        model: dict(sorted({**old.scores.get(model, {}), **baseline.scores.get(model, {})}.items()))
        for model in sorted(old.scores.keys() | baseline.scores.keys())
    }
    names = sorted({task for tasks in scores.values() for task in tasks})
    choose(names, tolerance.keys() - {DEFAULT, LANGUAGES}, "the tolerance's task")
    merged = Baseline(tolerance=_merged({**baseline.tolerance, **old.tolerance}, tolerance), scores=scores)
    atomic_write_text(path, json.dumps(merged.model_dump(exclude_defaults=True), indent=0, ensure_ascii=False) + "\n")
