"""Results as plain data: the one reader of mteb's files, which are also ours, without mteb."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import chain
from math import nan
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.claims import Claim
from xalign_models.errors import FileError, ModelError, one_line
from xalign_models.files import is_number, read_json
from xalign_models.parallel import map_forked
from xalign_models.results.languages import language_code, within
from xalign_models.results.layout import META, folder_name, result_files
from xalign_models.results.possible import MAIN, bounds, why_impossible
from xalign_models.specs import ModelSpec

logger = logging.getLogger(__name__)

FITTED = "fitted_share"
"""Score of the tasks on own text: share of the text that the model was fitted on; absent if none."""
METRICS = ("f1", "precision_at_1", "ndcg_at_10", "v_measure", "cosine_spearman", "map", "accuracy")
"""Main scores of multilingual tasks, mteb's and ours; the earlier one wins ties in :attr:`TaskScores.metric`."""
Choice = Callable[[Mapping[str, ModelSpec | None]], Collection[str]]
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
        baseline: Name of the same backbone, unaligned; None for itself and for models that are not ours.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    spec: ModelSpec | None = None
    trained_on: frozenset[str] = frozenset()
    baseline: str | None = field(init=False)

    def __post_init__(self) -> None:
        """Mark the name as a claim."""
        object.__setattr__(self, "name", Claim(self.name))
        baseline = self.spec and self.spec.baseline
        object.__setattr__(self, "baseline", baseline if baseline != self.name else None)


@dataclass(frozen=True)
class Frame:
    """Splits, subsets and languages of a result; results with equal ones share them, so that thousands fit into memory.

    Attributes:
        splits: Split of each entry.
        subsets: Its subset.
        spoken: Canonical codes of its languages.
    """

    splits: tuple[str, ...]
    subsets: tuple[str, ...]
    spoken: tuple[tuple[str, ...], ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The subset of each entry; ``split/subset`` if there are several splits."""
        pairs = zip(self.splits, self.subsets, strict=True)
        return tuple(map("/".join, pairs)) if len({*self.splits}) > 1 else self.subsets

    @cached_property
    def split(self) -> str:
        """Names of the splits, with commas between them."""
        return ", ".join(sorted({*self.splits}))

    @cached_property
    def twice(self) -> list[str]:
        """Subsets that a split has more than once, with the split."""
        named = Counter(zip(self.splits, self.subsets, strict=True))
        return [f"{subset!r} of {split}" for (split, subset), times in named.items() if times > 1]

    @cached_property
    def languages(self) -> Mapping[str, tuple[str, ...]]:
        """Canonical codes by subset, as in :meth:`TaskScores.values`."""
        return dict(zip(self.keys, self.spoken, strict=True))


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
        frame: Splits, subsets and languages of the n entries of the file.
        columns: (n,) scores by metric, float64; NaN where an entry has no possible one.
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
    frame: Frame
    columns: Mapping[str, npt.NDArray[np.float64]]
    impossible: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    mteb_version: str | None = None
    spec: ModelSpec | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The fields with the scores as one table, which pickles ten times faster than its rows."""
        return self.__dict__ | {"columns": ([*self.columns], np.array([*self.columns.values()]))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, columns=dict(zip(*state["columns"], strict=True)))

    @property
    def text(self) -> tuple[str | None, str]:
        """Revision and splits of the text: results of other texts do not compare."""
        return self.dataset_revision, self.frame.split

    def values(self, metric: str = MAIN, subsets: Collection[str] | None = None) -> Mapping[str, float]:
        """The metric by subset, of some or all; by ``split/subset`` if there are several splits.

        Subsets without it are left out.
        """
        if metric not in self._values:
            keyed = zip(self.frame.keys, self.columns[metric].tolist(), strict=True) if metric in self.columns else ()
            self._values[metric] = {key: value for key, value in keyed if value == value}
        found = self._values[metric]
        return found if subsets is None else {key: value for key, value in found.items() if key in subsets}

    def rows(self) -> list[tuple[str, str, tuple[str, ...], float]]:
        """Split, subset, languages and main score of each entry that has a possible one."""
        frame, scores = self.frame, self.columns.get(MAIN, np.full(len(self.frame.subsets), nan))
        rows = zip(frame.splits, frame.subsets, frame.spoken, scores.tolist(), strict=True)
        return [row for row in rows if row[3] == row[3]]

    @cached_property
    def _values(self) -> dict[str, dict[str, float]]:
        """Results of :meth:`values` by metric, which boards ask for ten times."""
        return {}

    @cached_property
    def metric(self) -> str:
        """The one of :data:`METRICS` that equals the main score in most entries; empty if none equals it in any."""
        equal = {
            name: int((self.columns[name] == self.columns.get(MAIN)).sum()) for name in METRICS if name in self.columns
        }
        return max((name for name in METRICS if equal.get(name)), key=equal.__getitem__, default="")


@dataclass(frozen=True)
class Results:
    """All results below a root.

    Attributes:
        root: The parent folder of ``results/``.
        tables: Scores by (model, task), sorted by names.
        unreadable: Files that were skipped, by (model, task); no older revision replaces them.
        several: Folders of the revisions, the newest last, by (model, task) with more than one.
        metadata: Content of each folder's ``model_meta.json`` but the arguments; empty if it is missing or damaged.
    """

    root: Path
    tables: Mapping[tuple[str, str], TaskScores]
    unreadable: Mapping[tuple[str, str], Path]
    several: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    metadata: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Names of the models that have results, sorted."""
        return sorted({model for model, _ in self.tables})

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that have results, sorted."""
        return sorted({task for _, task in self.tables})

    def subsets(self, task: str, models: Collection[str], languages: Collection[str] | None) -> set[str]:
        """Subsets of some models' results on a task that have one of the languages, and no other but that of all pairs.

        ``languages`` are canonical codes; None for all subsets.
        """
        frames = {
            id(table.frame): table.frame
            for (model, name), table in self.tables.items()
            if name == task and model in models
        }
        return within(
            {subset: codes for frame in frames.values() for subset, codes in frame.languages.items()}, languages
        )


def read_results(root: Path, *, tasks: Collection[str] | None = None, chosen: Choice | None = None) -> Results:
    """Read ``<org__name>/<revision>/<Task>.json`` of all models, as mteb, its public repository and we write them.

    If a model has a task under several revisions, the newest counts, by the date in the file or else the file's; a
    warning names those that do not. A file that cannot be read is skipped with a warning and kept in ``unreadable``.
    Scores that are not finite or outside their bounds are left out with a warning.

    Args:
        root: The folder that has ``results/``, that folder, mteb's own cache, or a clone of the public repository.
        tasks: Tasks to read; None for all.
        chosen: Names of the models to read, from the specs of all; None for all.

    Raises:
        ResultsError: There are no results at all.
    """
    paths = result_files(root)
    folders = [*dict.fromkeys(path.parent for path in paths)]
    models = dict(zip(folders, map_forked(_model, folders, len(paths)), strict=True))
    names = chosen and chosen({model.name: model.spec for model in models.values()})
    paths = [
        path
        for path in paths
        if (names is None or models[path.parent].name in names) and (tasks is None or path.stem in tasks)
    ]
    frames: dict[Frame, Frame] = {}
    read = map_forked(lambda path: _read(path, models[path.parent], frames), paths, len(paths))
    newest: dict[tuple[str, str], tuple[Path, TaskScores | str]] = {}
    revisions: dict[tuple[str, str], list[str]] = defaultdict(list)
    dropped: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # (model, older, newer revision) -> tasks
    for _, path, content in sorted(read, key=lambda file: (file[0], str(file[1]))):
        key = (models[path.parent].name, path.stem)
        if key in newest:
            dropped[key[0], newest[key][0].parent.name, path.parent.name].append(key[1])
        newest[key] = path, content
        revisions[key].append(path.parent.name)
    for name_and_revisions, names in dropped.items():
        logger.warning(
            "%s: revision %s is ignored for the newer %s on %s; `xalign fit --label` gives a model its own name.",
            *name_and_revisions,
            ", ".join(names),
        )
    unreadable = {key: file for key, file in sorted(newest.items()) if isinstance(file[1], str)}
    for path, reason in list(unreadable.values())[:MOST_NAMED]:
        logger.warning("%s is skipped: not a complete result (%s); `xalign run` writes it again.", path, reason)
    if len(unreadable) > MOST_NAMED:
        logger.warning("%d more files without a complete result are skipped.", len(unreadable) - MOST_NAMED)
    tables = {key: content for key, (_, content) in sorted(newest.items()) if isinstance(content, TaskScores)}
    several = {key: names for key, names in revisions.items() if len(names) > 1}
    metadata = {
        folder: {key: value for key, value in model.fields.items() if key != "loader_kwargs"}
        for folder, model in models.items()
    }
    return Results(root, tables, {key: path for key, (path, _) in unreadable.items()}, several, metadata)


def _model(folder: Path) -> ModelMeta:
    """A model by its metadata; by the folder's name if they are missing or damaged."""
    try:
        if (folder / META).exists():
            return read_meta(folder)
    except FileError as error:
        reason = one_line(error).removeprefix(f"{folder / META} is damaged: ")
        logger.warning("%s is damaged and not used (%s); `xalign run` writes it again.", folder / META, reason)
    return ModelMeta(folder.parent.name.replace("__", "/", 1))


def _read(path: Path, model: ModelMeta, frames: dict[Frame, Frame]) -> tuple[datetime, Path, TaskScores | str]:
    """Date and path of a file, and its scores or the reason why they are unreadable."""
    try:
        table = read_result(path, model, frames)
    except FileError as error:
        date = datetime.fromtimestamp(path.lstat().st_mtime).astimezone()  # a link may lead nowhere
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


def read_result(path: Path, model: ModelMeta | None = None, frames: dict[Frame, Frame] | None = None) -> TaskScores:
    """Read a file ``<Task>.json`` of a model, by default of the one that the folders name.

    ``frames`` are those of results that were read before, to which a new one is added.

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
        entries = [entry for of_split in data["scores"].values() for entry in of_split]
        frame = Frame(
            tuple([split for split, of_split in data["scores"].items() for _ in of_split]),
            _texts([entry["hf_subset"] for entry in entries]),
            tuple([spoken_codes(tuple(entry.get("languages", ()))) for entry in entries]),
        )
        frame = frame if frames is None else frames.setdefault(frame, frame)
        if frame.twice:
            raise ValueError(f"it lists {', '.join(frame.twice[:MOST_NAMED])} more than once")
        if len(frame.keys) > 1 and "mean" in frame.keys:
            raise ValueError("it calls a subset 'mean', like the mean over all")
        columns, left_out = _columns(entries, frame.subsets)
        missing = np.flatnonzero(np.isnan(columns[MAIN])) if MAIN in columns else range(len(entries))
        reasons = {frame.keys[place]: why_impossible(entries[place]) for place in missing}
        return TaskScores(
            model=model.name,
            revision=folder.name,
            task=path.stem,
            dataset_revision=_text_or_none(data.get("dataset_revision")),
            trained_on=path.stem in model.trained_on or any(entry.get(FITTED) for entry in entries),
            baseline=model.baseline,
            date=date,
            folder=path.parent,
            frame=frame,
            columns=columns,
            impossible={key: reason for key, reason in reasons.items() if reason},
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
    if reasons or len(table.values()) < max(1, len(table.frame.subsets)):
        raise FileError(f"impossible score of {reasons[0]}" if reasons else "a main score is missing")


def _date(path: Path, data: Mapping[str, Any]) -> datetime:
    """The date in a file's content, or else of the file."""
    date = data.get("date")
    if not isinstance(date, int | float):
        return _modified(path)
    try:
        return datetime.fromtimestamp(date).astimezone()
    except (OSError, ValueError, OverflowError):
        raise ValueError(f"its date {date!r:.40} is impossible") from None


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime).astimezone()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not text")
    return value


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    texts = tuple(values)
    return texts if {*map(type, texts)} <= {str} else tuple(map(_text, texts))


@lru_cache(maxsize=1 << 16)  # of pairs, there may be 40,000
def spoken_codes(codes: tuple[Any, ...]) -> tuple[str, ...]:
    """Canonical codes of languages, as far as they are known."""
    return tuple(language_code(code) or code for code in _texts(codes))


def _columns(
    entries: Sequence[Mapping[str, Any]], subsets: Sequence[str]
) -> tuple[dict[str, npt.NDArray[np.float64]], list[str]]:
    """The possible scores by metric, and the names of the impossible ones in the file's order."""
    numbers: dict[str, Sequence[float]] = {}
    names = dict.fromkeys(chain.from_iterable(entries))
    whole = all(len(entry) == len(names) for entry in entries)
    for name in names:
        values: list[Any] = [*map(itemgetter(name), entries)] if whole else [entry.get(name) for entry in entries]
        if (kinds := {*map(type, values)}) & {int, float}:
            floats = kinds == {float}
            numbers[name] = values if floats else [v if type(v) is float or is_number(v) else nan for v in values]
    table = np.array([*numbers.values()], np.float64).reshape(len(numbers), len(entries))
    low, high = np.array([*map(bounds, numbers)], np.float64).reshape(-1, 2).T[:, :, None]
    left_out = []
    for row, place in np.argwhere(~((table >= low) & (table <= high))).tolist():
        name = [*numbers][row]
        value = entries[place].get(name)
        if type(value) in {int, float} and why_impossible(entries[place], name) is not None:
            table[row, place] = nan
            if name == MAIN or value == value:  # mteb writes NaN where a metric is undefined
                left_out.append((place, f"{name} of {subsets[place]} ({str(value)[:40]})"))
    empty = {*np.flatnonzero(np.isnan(table).all(axis=1)).tolist()}
    columns = {name: table[row] for row, name in enumerate(numbers) if row not in empty}
    return columns, [text for _, text in sorted(left_out, key=itemgetter(0))]
