"""Results as plain data: the one reader of mteb's files, which are also ours, without mteb."""

from __future__ import annotations

import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any

from xalign_models.claims import Claim
from xalign_models.errors import FileError, ModelError, one_line
from xalign_models.files import read_json
from xalign_models.results.layout import META, folder_name, result_files
from xalign_models.results.possible import MAIN, why_impossible
from xalign_models.specs import ModelSpec

logger = logging.getLogger(__name__)

FITTED = "fitted_share"
"""Score of the tasks on own text: share of the text that the model was fitted on; absent if none."""
MOST_NAMED = 5
"""Maximum number of files, or of scores of a file, that warnings list."""


@dataclass(frozen=True)
class ModelMeta:
    """A model's entry in its ``model_meta.json``.

    Attributes:
        name: Name of the model, a claim.
        fields: Everything that the file has; empty if it is missing or damaged.
        arguments: Arguments of the model's loader.
        spec: The model's spec; None for models that are not ours.
        trained_on: Names of its training data and of the tasks that have the text it was fitted on.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    spec: ModelSpec | None = None
    trained_on: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Mark the name as a claim."""
        object.__setattr__(self, "name", Claim(self.name))


class Numbers(Mapping[str, float]):
    """Metric -> value; the names are shared by all subsets of a file, so that thousands of files fit into memory."""

    __slots__ = ("_names", "_values")

    def __init__(self, numbers: Mapping[str, float], known: dict[tuple[str, ...], dict[str, int]]) -> None:
        names = tuple(numbers)
        self._names = known.setdefault(names, {name: place for place, name in enumerate(names)})
        self._values = array("d", numbers.values())

    def __getitem__(self, name: str) -> float:
        return self._values[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class TaskScores:
    """Scores of one model on one task.

    Attributes:
        model: Name of the model.
        revision: Revision of the model, and name of the folder.
        task: Name of the task.
        dataset_revision: Revision of the text.
        trained_on: Whether the model's training data name the task, or a score says that it was fitted on its text.
        baseline: Name of the same backbone, unaligned; None for itself and for models that are not ours.
        date: Date of the run, or else of the file.
        folder: Folder of the file; outcomes of single items are in ``items/<task>.npz`` below it.
        entries: (split, subset, languages, metric -> value) as in the file, possible scores only.
        impossible: Reasons why main scores are impossible, by subset as in :meth:`values`.
        left_out: Names of all impossible scores, with their subsets and values.
        mteb_version: Version of mteb that scored it; None if the file does not say.
        spec: The model's spec; None for models that are not ours.
    """

    model: str
    revision: str
    task: str
    dataset_revision: str | None
    trained_on: bool
    baseline: str | None
    date: datetime
    folder: Path
    entries: tuple[tuple[str, str, tuple[str, ...], Mapping[str, float]], ...]
    impossible: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    mteb_version: str | None = None
    spec: ModelSpec | None = None

    def values(self, metric: str = MAIN) -> dict[str, float]:
        """The metric by subset; by ``split/subset`` if there are several splits. Subsets without it are left out."""
        return dict(self._main) if metric == MAIN else self._column(metric)

    def _column(self, metric: str) -> dict[str, float]:
        keyed = zip(self._keys, self.entries, strict=True)
        return {key: scores[metric] for key, (*_, scores) in keyed if metric in scores}

    @cached_property
    def _main(self) -> dict[str, float]:
        return self._column(MAIN)

    @cached_property
    def _keys(self) -> list[str]:
        return _keys(self.entries)

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics that any subset has."""
        return {metric for *_, scores in self.entries for metric in scores}

    @property
    def languages(self) -> dict[str, tuple[str, ...]]:
        """Canonical codes by subset, as in :meth:`values`."""
        return dict(zip(self._keys, (languages for _, _, languages, _ in self.entries), strict=True))


@dataclass(frozen=True)
class Results:
    """All results below a root.

    Attributes:
        root: The parent folder of ``results/``.
        tables: Scores by (model, task), sorted by names.
        unreadable: Files that were skipped, by (model, task); no older revision replaces them.
        several: Folders of the revisions, the newest last, by (model, task) with more than one.
    """

    root: Path
    tables: Mapping[tuple[str, str], TaskScores]
    unreadable: Mapping[tuple[str, str], Path]
    several: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

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
    paths = result_files(root)
    models = {folder: _model(folder) for folder in {path.parent for path in paths}}
    read = [_read(path, models[path.parent]) for path in paths if tasks is None or path.stem in tasks]
    newest: dict[tuple[str, str], tuple[Path, TaskScores | str]] = {}
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    dropped: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # (model, older, newer revision) -> tasks
    for _, path, content in sorted(read, key=lambda file: file[:2]):
        key = (models[path.parent].name, path.stem)
        if key in newest:
            dropped[key[0], newest[key][0].parent.name, path.parent.name].append(key[1])
        newest[key] = path, content
        folders[key].append(path.parent.name)
    for revisions, names in dropped.items():
        logger.warning(
            "%s: revision %s is ignored for the newer %s on %s; `xalign fit --label` gives a model a name of its own.",
            *revisions,
            ", ".join(names),
        )
    unreadable = {key: file for key, file in sorted(newest.items()) if isinstance(file[1], str)}
    for path, reason in list(unreadable.values())[:MOST_NAMED]:
        logger.warning("%s is skipped: no whole result (%s); `xalign run` writes it again.", path, reason)
    if len(unreadable) > MOST_NAMED:
        logger.warning("%d more files that are no whole results are skipped.", len(unreadable) - MOST_NAMED)
    tables = {key: content for key, (_, content) in sorted(newest.items()) if isinstance(content, TaskScores)}
    several = {key: names for key, names in folders.items() if len(names) > 1}
    return Results(root, tables, {key: path for key, (path, _) in unreadable.items()}, several)


def _model(folder: Path) -> ModelMeta:
    """A model by its metadata; by the folder's name if they are missing or damaged."""
    try:
        if (folder / META).exists():
            return read_meta(folder)
    except FileError as error:
        reason = one_line(error).removeprefix(f"{folder / META} is damaged: ")
        logger.warning("%s is damaged and not used (%s); `xalign run` writes it again.", folder / META, reason)
    return ModelMeta(folder.parent.name.replace("__", "/", 1))


def _read(path: Path, model: ModelMeta) -> tuple[datetime, Path, TaskScores | str]:
    """Date and path of a file, and its scores or the reason why they are unreadable."""
    try:
        table = read_result(path, model)
    except FileError as error:
        date = _modified(path)
        with suppress(FileError, ValueError, OverflowError, OSError):
            date = _date(path, read_json(path))
        return date, path, str(error)
    if names := table.left_out:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        logger.warning("%s: impossible scores are left out: %s%s.", path, ", ".join(names[:MOST_NAMED]), more)
    return table.date, path, table


def read_meta(folder: Path) -> ModelMeta:
    """Read the ``model_meta.json`` in a folder of a model's revision.

    Raises:
        FileError: The file is missing, damaged, or describes another model.
    """
    path = folder / META
    fields = read_json(path)
    try:
        name, arguments = fields["name"], fields.get("loader_kwargs") or {}
        if not isinstance(name, str) or folder_name(name) != folder.parent.name:
            raise ValueError(f"its name is {name!r}")
        spec = ModelSpec.from_dict(arguments["spec"]) if "spec" in arguments else None
        trained_on = {*(fields.get("training_datasets") or ()), *arguments.get("fitted_on", ())}
    except (ValueError, KeyError, TypeError, AttributeError, ModelError) as error:
        raise FileError(f"{path} is damaged: {one_line(error)}") from None
    return ModelMeta(name, fields, arguments, spec, frozenset(map(str, trained_on)))


def read_result(path: Path, model: ModelMeta | None = None) -> TaskScores:
    """Read a file ``<Task>.json`` of a model, by default of the one that the folders name.

    Raises:
        FileError: The file is not a whole result of its task; the message does not repeat the path.
    """
    folder = path.absolute().parent
    model = model or ModelMeta(folder.parent.name.replace("__", "/", 1))
    try:
        data = read_json(path)
        date = _date(path, data)
        if data.get("task_name", path.stem) != path.stem:
            raise ValueError(f"it is a result of {data['task_name']!r}")
        parts = [
            (split, _text(entry["hf_subset"]), entry) for split in data["scores"] for entry in data["scores"][split]
        ]
        named = Counter(part[:2] for part in parts)
        if twice := [f"{subset!r} of {split}" for (split, subset), times in named.items() if times > 1]:
            raise ValueError(f"it lists {', '.join(twice[:MOST_NAMED])} more than once")
        left_out: list[str] = []
        known: dict[tuple[str, ...], dict[str, int]] = {}
        numbers = [Numbers(_numbers(entry, subset, left_out), known) for _, subset, entry in parts]
        reasons = [
            None if MAIN in scores else why_impossible(entry)
            for scores, (*_, entry) in zip(numbers, parts, strict=True)
        ]
        return TaskScores(
            model=model.name,
            revision=folder.name,
            task=path.stem,
            dataset_revision=_text_or_none(data.get("dataset_revision")),
            trained_on=path.stem in model.trained_on or any(entry.get(FITTED) for *_, entry in parts),
            baseline=model.spec.baseline if model.spec and model.spec.baseline != model.name else None,
            date=date,
            folder=path.parent,
            entries=tuple(
                (split, subset, _texts(entry.get("languages", ())), scores)
                for scores, (split, subset, entry) in zip(numbers, parts, strict=True)
            ),
            impossible={key: reason for key, reason in zip(_keys(parts), reasons, strict=True) if reason},
            left_out=left_out,
            mteb_version=_text_or_none(data.get("mteb_version")),
            spec=model.spec,
        )
    except (LookupError, TypeError, AttributeError):
        raise FileError("it does not have the form of a result of mteb") from None
    except (OSError, ValueError, OverflowError, FileError) as error:
        raise FileError(one_line(error).removeprefix(f"{path} ").removeprefix("is damaged: ")) from None


def check_main_scores(table: TaskScores) -> None:
    """Check that every subset has a possible main score.

    Raises:
        FileError: A main score is missing or impossible.
    """
    reasons = [f"{subset}: {reason}" for subset, reason in table.impossible.items()]
    if reasons or not table.entries or len(table.values()) < len(table.entries):
        raise FileError(f"impossible score of {reasons[0]}" if reasons else "a main score is missing")


def _date(path: Path, data: Mapping[str, Any]) -> datetime:
    """The date in a file's content, or else of the file."""
    date = data.get("date")
    return datetime.fromtimestamp(date).astimezone() if isinstance(date, int | float) else _modified(path)


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime).astimezone()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(values) if {*map(type, values)} <= {str} else tuple(map(_text, values))


def _keys(entries: Sequence[tuple[Any, ...]]) -> list[str]:
    """The subset of each (split, subset, ...); ``split/subset`` if there are several splits."""
    several = len({split for split, *_ in entries}) > 1
    return [f"{split}/{subset}" if several else subset for split, subset, *_ in entries]


def _numbers(entry: Mapping[str, Any], subset: str, left_out: list[str]) -> dict[str, float]:
    """The possible scores of a subset; impossible ones are added to ``left_out``."""
    numbers: dict[str, float] = {}
    for key, value in entry.items():
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, int | float)):
            continue
        if 0 <= value <= 1 or why_impossible(entry, key) is None:  # no range ends within [0, 1]
            numbers[key] = float(value)
        elif key == MAIN or not isnan(value):  # mteb writes NaN where a metric is undefined
            left_out.append(f"{key} of {subset} ({str(value)[:40]})")
    return numbers
