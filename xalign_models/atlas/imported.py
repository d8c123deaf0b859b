"""Public results of mteb as plain data, from a clone, a cache folder of mteb, or a table in Parquet; and back."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.atlas.table import short_revision
from xalign_models.errors import FileError, ResultsError
from xalign_models.files import read_parquet
from xalign_models.paths import atomic_write_text
from xalign_models.results.layout import META, folder_name, result_files
from xalign_models.results.possible import MAIN, minimum, outside
from xalign_models.results.reading import Frame, Results, TaskScores, read_meta, read_result

METRICS = ("f1", "precision_at_1", "ndcg_at_10", "v_measure", "cosine_spearman", "map", "accuracy")
"""Main scores of multilingual tasks, mteb's and ours; the earlier one wins ties in :func:`_metric`."""
SATURATED, FEWEST = 0.5, 50
"""A result of at least ``FEWEST`` subsets of which more than this share is exactly 1 is implausible."""
_COLUMNS = (
    "model", "revision", "mteb_version", "task", "dataset_revision", "split", "subset", "languages", "main_score",
    "metric",
)  # fmt: skip
_NAME = re.compile(r"[^./\\\x00][^/\\\x00]*")


ScoreRow = tuple[str, str, tuple[str, ...], float]
"""Split, subset, the subset's languages as mteb codes them, and the main score."""


@dataclass(frozen=True)
class PublicResult:
    """The main scores of one revision of a model on one revision of a task's text.

    Attributes:
        model: The model's hub id, ``org/name``.
        revision: The model's revision, which is also the folder's name.
        task: The task's name.
        mteb_version: The version that scored it; None where the file does not say.
        dataset_revision: The revision of the text; None where the file does not say.
        metric: The name of the main score, e.g. ``f1``; empty where no named metric equals it.
        prompts: The prompts that the model's metadata record; None where they record none.
        rows: One per subset.
        faults: Scores that were left out, each with the reason.
    """

    model: str
    revision: str
    task: str
    mteb_version: str | None
    dataset_revision: str | None
    metric: str
    prompts: dict[str, str] | None
    rows: tuple[ScoreRow, ...] = field(repr=False)
    faults: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Model, revision and task."""
        return f"{self.model} {self.revision} {self.task}"


@dataclass(frozen=True)
class Imported:
    """Usable public results, and one line for each omission."""

    results: tuple[PublicResult, ...]
    problems: tuple[str, ...]


def read_public(path: Path, *, models: Collection[str] = (), tasks: Collection[str] = ()) -> Imported:
    """Read public results; broken, duplicate and implausible ones are reported and left out.

    Args:
        path: A clone of the public results repository, a cache folder of mteb, its ``results`` folder, or a Parquet
            file with the columns model, revision, mteb_version, task, dataset_revision, split, subset, languages,
            main_score and metric.
        models: Hub ids to keep; none keeps all.
        tasks: Names of tasks to keep; none keeps all.

    Raises:
        ResultsError: There are no results.
    """
    problems: list[str] = []
    if path.is_dir():
        public = _read_folder(path, problems, tasks)
    elif path.suffix == ".parquet" and path.is_file():
        public = _read_parquet(path, problems)
    else:
        raise ResultsError(f"{path} is neither a folder of results nor a .parquet file.")
    selected = (
        result for result in public if (not models or result.model in models) and (not tasks or result.task in tasks)
    )
    results = _without_duplicates(_plausible(selected, problems), problems)
    if not results and not problems:
        raise ResultsError(
            f"No results under {path}; they lie in results/<org__name>/<revision>/<Task>.json or in a .parquet file."
        )
    return Imported(tuple(results), tuple(problems))


def of_results(results: Results) -> list[PublicResult]:
    """Results that were read as public ones, without what :func:`read_public` leaves out, and without prompts."""
    public = []
    for table in results.tables.values():
        with suppress(FileError):
            public.append(_of_table(table, None))
    return _without_duplicates(_plausible(public, []), [])


def _read_parquet(path: Path, problems: list[str]) -> Iterator[PublicResult]:
    import pyarrow as pa

    try:
        table = read_parquet(path, _COLUMNS)
        scores = table.column("main_score").cast(pa.float64()).to_numpy()
        text = {column: _encode(table.column(column)) for column in _COLUMNS if column != "main_score"}
    except (FileError, pa.ArrowException, ValueError) as error:
        raise ResultsError(f"{path} is not a table of results with the columns {', '.join(_COLUMNS)}.") from error
    codes = {column: encoded for column, (encoded, _) in text.items()}
    names = {column: values for column, (_, values) in text.items()}
    keys = ("model", "revision", "task", "dataset_revision", "mteb_version")
    order = np.lexsort([codes[key] for key in keys])
    changes = np.any([np.diff(codes[key][order]) != 0 for key in keys], axis=0)
    languages = [tuple((text or "").split()) for text in names["languages"]]
    for part in np.split(order, np.flatnonzero(changes) + 1) if len(order) else ():
        first = {key: names[key][codes[key][part[0]]] for key in keys}
        if None in (first["model"], first["revision"], first["task"]):
            problems.append(f"{len(part)} rows left out, without a model, revision or task")
            continue
        metrics = Counter(names["metric"][code] for code in codes["metric"][part])
        places = (codes[column][part] for column in ("split", "subset", "languages"))
        yield PublicResult(
            model=first["model"].replace("__", "/", 1),
            revision=first["revision"],
            task=first["task"],
            mteb_version=first["mteb_version"],
            dataset_revision=first["dataset_revision"],
            # The table has one metric a row: a subset in which all is right has F1 equal to accuracy.
            metric="f1" if "f1" in metrics else _metric(metrics),
            prompts=None,
            rows=tuple(
                (str(names["split"][split]), str(names["subset"][subset]), languages[language], score)
                for split, subset, language, score in zip(*places, scores[part].tolist(), strict=True)
            ),
        )


def _encode(column: Any) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    """A column of text as codes and values; a missing value has the code -1, the place of the None at the end."""
    import pyarrow as pa

    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.cast(pa.string()).dictionary_encode()
    values = encoded.dictionary.cast(pa.string()).to_pylist()
    return encoded.indices.cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False), [*values, None]


def _metric(counts: Mapping[str | None, int]) -> str:
    """The metric that equals the main score in most rows; empty if none of METRICS does."""
    return max((name for name in METRICS if counts.get(name)), key=counts.__getitem__, default="")


def _read_folder(path: Path, problems: list[str], tasks: Collection[str]) -> Iterator[PublicResult]:
    prompts_in, frames = cache(_prompts), dict[Frame, Frame]()
    for file in result_files(path):
        if tasks and file.stem not in tasks:
            continue
        try:
            yield _of_table(read_result(file, frames=frames), prompts_in(file.parent))
        except FileError as error:
            problems.append(f"{'/'.join(file.parts[-3:])}: left out, no whole result ({error})")


def _of_table(table: TaskScores, prompts: dict[str, str] | None) -> PublicResult:
    scores = table.columns.get(MAIN, np.full(len(table.frame.subsets), np.nan))
    possible = ~np.isnan(scores)
    if possible.sum() + len(table.impossible) < max(1, len(table.frame.subsets)):
        raise FileError("a main score is missing")
    equal: dict[str | None, int] = {
        name: int((table.columns[name] == scores).sum()) for name in METRICS if name in table.columns
    }
    frame = table.frame
    rows = zip(frame.splits, frame.subsets, frame.spoken, scores.tolist(), strict=True)
    return PublicResult(
        model=table.model,
        revision=table.revision,
        task=table.task,
        mteb_version=table.mteb_version,
        dataset_revision=table.dataset_revision,
        metric=_metric(equal),
        prompts=prompts,
        rows=tuple(row for row, kept in zip(rows, possible, strict=True) if kept),
        faults=tuple(f"{subset}: {reason}" for subset, reason in table.impossible.items()),
    )


def _prompts(folder: Path) -> dict[str, str] | None:
    """The prompts in a model's metadata; None if there are none or the file cannot be read."""
    try:
        prompts = read_meta(folder).arguments.get("model_prompts")
    except FileError:
        return None
    return prompts if isinstance(prompts, dict) else None


def _plausible(results: Iterable[PublicResult], problems: list[str]) -> Iterator[PublicResult]:
    """Drop implausible scores and results."""
    possible, implausible = [], {}
    for result in results:
        if not all(map(_NAME.fullmatch, (*result.model.split("/"), result.revision, result.task))):
            problems.append(f"{result.name}: left out, a name that no folder can have")
            continue
        least = minimum([result.metric])
        rows: dict[tuple[str, str], ScoreRow] = {}
        faults = list(result.faults)
        for row in result.rows:
            if reason := outside(row[3], least):
                faults.append(f"{row[1]}: {reason}")
            elif rows.setdefault((row[0], row[1]), row) is not row:
                faults.append(f"{row[1]} has several scores; the first counts")
        if faults:
            total = len(result.rows) + len(result.faults)
            problems.append(f"{result.name}: {len(faults)} of {total} scores left out, e.g. {faults[0]}")
        perfect = sum(row[3] == 1 for row in rows.values())
        if len(rows) >= FEWEST and perfect > SATURATED * len(rows):
            implausible[_run(result)] = f"{perfect} of {len(rows)} subsets of {result.task} are exactly 1"
        if rows:
            possible.append(replace(result, rows=tuple(rows.values()), faults=()))
    for result in possible:
        if _run(result) in implausible:
            reason = implausible[_run(result)]
            problems.append(f"{result.name}: left out, in this run {reason}, as if few texts were scored")
        else:
            yield result


def _run(result: PublicResult) -> tuple[str | None, ...]:
    return result.model, result.revision, result.mteb_version


def _without_duplicates(results: Iterable[PublicResult], problems: list[str]) -> list[PublicResult]:
    """One result per model, task, text and metric: the one with most subsets, then of the newest mteb."""
    groups: dict[tuple[str, ...], list[PublicResult]] = defaultdict(list)
    for result in results:
        groups[result.model, result.task, result.dataset_revision or "", result.metric].append(result)
    chosen = []
    for _, group in sorted(groups.items()):
        best, *others = sorted(group, key=_preference, reverse=True)
        chosen.append(best)
        problems += [f"{other.name}: left out, {best.revision} has the same task" for other in others]
    return chosen


def _preference(result: PublicResult) -> tuple[Any, ...]:
    return len(result.rows), version_key(result.mteb_version), result.revision


def version_key(version: str | None) -> tuple[int, ...]:
    """A version of mteb, such as 2.26.1, as numbers that compare."""
    return tuple(int(part) if part.isdigit() else 0 for part in (version or "0").split("."))


def comparable(results: Iterable[PublicResult]) -> list[dict[str, Any]]:
    """One row for each task, revision of its text and metric, within which results can be compared."""
    groups: dict[tuple[str, ...], list[PublicResult]] = defaultdict(list)
    for result in results:
        groups[result.task, result.dataset_revision or "", result.metric].append(result)
    return [
        {
            "task": task,
            "dataset_revision": short_revision(revision) or None,
            "metric": metric or None,
            "models": len({result.model for result in group}),
            "subsets": len({row[:2] for result in group for row in result.rows}),
            "scores": sum(len(result.rows) for result in group),
        }
        for (task, revision, metric), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]


def write_results(results: Iterable[PublicResult], root: Path, source: str) -> int:
    """Write ``<root>/results/<org__name>/<revision>/<Task>.json`` of each result, and return the number of files.

    Each model's metadata records ``source``, the origin of the results.
    """
    folders: dict[Path, list[PublicResult]] = defaultdict(list)
    for result in results:
        folders[root / "results" / folder_name(result.model) / result.revision].append(result)
    for folder, group in folders.items():
        for result in group:
            atomic_write_text(folder / f"{result.task}.json", json.dumps(_content(result), ensure_ascii=False))
        if not (folder / META).exists():
            meta: dict[str, Any] = {"name": group[0].model, "revision": group[0].revision, "imported_from": source}
            if group[0].prompts:
                meta["loader_kwargs"] = {"model_prompts": group[0].prompts}
            atomic_write_text(folder / META, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    return sum(map(len, folders.values()))


def _content(result: PublicResult) -> dict[str, Any]:
    scores: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for split, subset, languages, score in result.rows:
        named = {result.metric: score} if result.metric else {}
        scores[split].append({**named, MAIN: score, "hf_subset": subset, "languages": languages})
    return {
        "dataset_revision": result.dataset_revision,
        "task_name": result.task,
        "mteb_version": result.mteb_version,
        "scores": scores,
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
