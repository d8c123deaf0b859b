"""Results as plain data: mteb's result files, read without mteb."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from xalign_models.errors import DataError, FileError, ModelError, ResultsError, one_line
from xalign_models.files import is_number, read_json
from xalign_models.results.possible import why_impossible
from xalign_models.specs import ModelSpec

logger = logging.getLogger(__name__)

MAIN = "main_score"
META, SETTINGS = "model_meta.json", "run_settings.jsonl"
MOST_NAMED = 5
"""Maximum number of files, or of scores of a file, that warnings list."""
_BOUNDS = (
    (re.compile("(before_|after_)?(precision|recall|ndcg|map|mrr|hit_rate|accuracy|f1|ap)(_|$)"), 0),
    (re.compile(".*(main_score|spearman|pearson)"), -1),
)
"""Metrics and their minimum; the maximum is 1. Other metrics may have any finite value."""
_NOISE = 1e-6  # of scores with six decimals
_PAIR = re.compile(r"([a-z]{3}_[A-Z][a-z]{3})-([a-z]{3}_[A-Z][a-z]{3})")


@dataclass(frozen=True)
class TaskScores:
    """Scores of one model on one task.

    Attributes:
        model: Name of the model.
        revision: Revision of the model, and name of the folder.
        task: Name of the task.
        dataset_revision: Revision of the text.
        trained_on: Whether the model's training data name the task.
        baseline: Name of the same backbone, unaligned; None for itself and for models that are not ours.
        date: Date of the run, or else of the file.
        folder: Folder of the file; outcomes of single items are in ``items/<task>.npz`` below it.
        entries: (split, subset, languages, metric -> value) as in the file, numbers only.
        impossible: Reasons why main scores are impossible, by subset as in :meth:`values`.
    """

    model: str
    revision: str
    task: str
    dataset_revision: str | None
    trained_on: bool
    baseline: str | None
    date: datetime
    folder: Path
    entries: tuple[tuple[str, str, tuple[str, ...], dict[str, float]], ...]
    impossible: Mapping[str, str] = field(default_factory=dict)

    def values(self, metric: str = MAIN) -> dict[str, float]:
        """The metric by subset; by ``split/subset`` if there are several splits. Subsets without it are left out."""
        several = len({split for split, *_ in self.entries}) > 1
        return {
            f"{split}/{subset}" if several else subset: scores[metric]
            for split, subset, _, scores in self.entries
            if metric in scores
        }

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics that any subset has."""
        return {metric for *_, scores in self.entries for metric in scores}

    @property
    def languages(self) -> dict[str, tuple[str, ...]]:
        """Canonical codes by subset."""
        return {subset: languages for _, subset, languages, _ in self.entries}


@dataclass(frozen=True)
class Results:
    """All results below a root.

    Attributes:
        root: The parent folder of ``results/``.
        tables: Scores by (model, task), sorted by names.
        unreadable: Files that were skipped, by (model, task); no older revision replaces them.
    """

    root: Path
    tables: Mapping[tuple[str, str], TaskScores]
    unreadable: Mapping[tuple[str, str], Path]

    @property
    def models(self) -> list[str]:
        """Names of the models that have results, sorted."""
        return sorted({model for model, _ in self.tables})

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that have results, sorted."""
        return sorted({task for _, task in self.tables})


def read_results(root: Path, *, tasks: Collection[str] | None = None) -> Results:
    """Read ``<org__name>/<revision>/<Task>.json`` of all models, as mteb, its public repository and we write them.

    If a model has a task under several revisions, the newest counts, by the date in the file or else the file's; a
    warning names those that do not. A file that cannot be read is skipped with a warning and kept in ``unreadable``.
    Scores that are not finite or outside their bounds are left out with a warning.

    Args:
        root: The folder that has ``results/``, that folder, mteb's own cache, or a clone of the public repository.
        tasks: Tasks to read; None for all.

    Raises:
        ResultsError: There are no results at all.
    """
    folders = [folder for folder in (root / "results", root / "remote" / "results") if folder.is_dir()] or [root]
    paths = [
        path
        for folder in folders
        for path in sorted(folder.glob("*/*/*.json"))
        if path.name != META and not path.name.startswith(".") and "__" in path.parts[-3]
    ]
    if not paths:
        raise ResultsError(f"No results under {folders[0]}; `xalign run` makes them, or name another folder.")
    metas = {folder: _read_meta(folder) for folder in {path.parent for path in paths}}
    newest: dict[tuple[str, str], _File] = {}
    dropped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    chosen = [path for path in paths if tasks is None or path.stem in tasks]
    read = (_read_file(path, metas[path.parent]) for path in chosen)
    for file in sorted(read, key=lambda file: (file.date, file.path)):
        key = (metas[file.path.parent].name, file.path.stem)
        if key in newest:
            dropped[key[0], newest[key].path.parent.name, file.path.parent.name].append(key[1])
        newest[key] = file
    for (model, older, newer), names in dropped.items():
        logger.warning(
            "%s: revision %s is ignored for the newer %s on %s; `xalign fit --label` gives a model a name of its own.",
            model,
            older,
            newer,
            ", ".join(names),
        )
    unreadable = {key: file for key, file in sorted(newest.items()) if isinstance(file.content, str)}
    for shown, file in enumerate(unreadable.values()):
        if shown == MOST_NAMED:
            logger.warning("%d more files are skipped, they are no whole results.", len(unreadable) - shown)
            break
        logger.warning("%s is skipped: no whole result (%s); `xalign run` makes it anew.", file.path, file.content)
    tables = {key: file.content for key, file in sorted(newest.items()) if isinstance(file.content, TaskScores)}
    return Results(root, tables, {key: file.path for key, file in unreadable.items()})


@dataclass(frozen=True)
class _Meta:
    """The needed fields of ``model_meta.json``."""

    name: str
    training_datasets: frozenset[str] = frozenset()
    baseline: str | None = None


@dataclass(frozen=True)
class _File:
    """A file of results: its scores, or the reason why they are unreadable."""

    path: Path
    date: datetime
    content: TaskScores | str


def _read_meta(folder: Path) -> _Meta:
    """A model's metadata, checked against the folder's name; defaults if the file is missing or damaged."""
    fallback = _Meta(folder.parent.name.replace("__", "/", 1))
    try:
        if not (folder / META).exists():
            return fallback
        data = read_json(folder / META)
        name, arguments = data["name"], data.get("loader_kwargs") or {}
        if (
            not isinstance(name, str)
            or re.sub("[/ ]", lambda m: {"/": "__", " ": "_"}[m[0]], name) != folder.parent.name
        ):
            raise ValueError(f"its name is {name!r}")
        trained = {*(data.get("training_datasets") or ()), *arguments.get("fitted_on", ())}
        baseline = ModelSpec.from_dict(arguments["spec"]).baseline if "spec" in arguments else name
        return _Meta(name, frozenset(map(str, trained)), None if baseline == name else baseline)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ModelError, FileError) as error:
        reason = one_line(error).removeprefix(f"{folder / META} is damaged: ")
        logger.warning("%s is damaged and left aside (%s); `xalign run` writes it anew.", folder / META, reason)
        return fallback


def _read_file(path: Path, meta: _Meta) -> _File:
    date = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    try:
        data = read_json(path)
        if data.get("task_name", path.stem) != path.stem:
            raise ValueError(f"it is of task {data['task_name']!r}")
        if isinstance(data.get("date"), int | float):
            date = datetime.fromtimestamp(data["date"]).astimezone()
        left_out: list[str] = []
        entries = tuple(
            (split, _text(entry["hf_subset"]), tuple(map(_text, entry.get("languages", ()))), _numbers(entry, left_out))
            for split, subsets in data["scores"].items()
            for entry in subsets
        )
        several = len({split for split, *_ in entries}) > 1
        wrong = {
            f"{split}/{entry['hf_subset']}" if several else entry["hf_subset"]: why_impossible(entry, MAIN)
            for split, subsets in data["scores"].items()
            for entry in subsets
        }
        revision = data.get("dataset_revision")
        if not isinstance(revision, str | None):
            raise TypeError("its dataset_revision is no text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, FileError) as error:
        return _File(path, date, one_line(error).removeprefix(f"{path} "))
    if left_out:
        rest = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        logger.warning("%s: no scores, and left out: %s%s.", path, ", ".join(left_out[:MOST_NAMED]), rest)
    table = TaskScores(
        model=meta.name,
        revision=path.parent.name,
        task=path.stem,
        dataset_revision=revision,
        trained_on=path.stem in meta.training_datasets,
        baseline=meta.baseline,
        date=date,
        folder=path.parent,
        entries=entries,
        impossible={subset: reason for subset, reason in wrong.items() if reason},
    )
    return _File(path, date, table)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _numbers(entry: Mapping[str, Any], left_out: list[str]) -> dict[str, float]:
    """The valid scores of a subset; invalid ones of bounded metrics are added to ``left_out``."""
    numbers: dict[str, float] = {}
    for key, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        lowest = _lowest(key)
        if is_number(value) and (lowest is None or lowest - _NOISE <= value <= 1 + _NOISE):
            numbers[key] = float(value)
        elif lowest is not None and (key == MAIN or not isnan(value)):  # mteb writes NaN where a metric is undefined
            left_out.append(f"{key} of {entry['hf_subset']} ({str(value)[:40]})")
    return numbers


@cache
def _lowest(metric: str) -> int | None:
    """A metric's minimum; None if it has no bounds."""
    return next((least for pattern, least in _BOUNDS if pattern.match(metric)), None)


def language_pairs(subsets: Iterable[str]) -> dict[str, tuple[str, str]] | None:
    """``deu_Latn-eng_Latn`` -> (``deu_Latn``, ``eng_Latn``) for each subset; None unless all are such pairs."""
    matches = {subset: _PAIR.fullmatch(subset) for subset in subsets}
    pairs = {subset: (match[1], match[2]) for subset, match in matches.items() if match}
    return pairs if len(pairs) == len(matches) else None


def into_and_from(scores: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Means by target and by source language of a score by subset ``a-b``.

    Returns:
        (Into X, From X), keyed by the language as in the subsets, sorted.

    Raises:
        DataError: There are no scores.
    """
    if not scores:
        raise DataError("There are no scores to average.")
    into, leaving = defaultdict(list), defaultdict(list)
    for subset, value in scores.items():
        source, target = subset.split("-")
        into[target].append(value)
        leaving[source].append(value)
    return {x: fmean(into[x]) for x in sorted(into)}, {x: fmean(leaving[x]) for x in sorted(leaving)}
