"""Public results of mteb as plain data, from a clone, a cache folder of mteb, or a table in Parquet; and back."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xalign_models.atlas.table import short_revision
from xalign_models.errors import FileError, ResultsError, plural
from xalign_models.files import read_parquet
from xalign_models.paths import atomic_write_text
from xalign_models.results.layout import META, folder_name, result_files
from xalign_models.results.possible import MAIN, minimum, outside
from xalign_models.results.reading import METRICS, Frame, Results, TaskScores, read_meta, read_result, spoken_codes

SATURATED, FEWEST = 0.5, 50
"""A result of at least ``FEWEST`` subsets of which more than this share is exactly 1 is implausible."""
_RUN = ("model", "revision", "task", "dataset_revision", "mteb_version")
_TEXT = (*_RUN, "split", "subset", "languages", "metric")
_COLUMNS = (*_TEXT, "main_score")
_NAME = re.compile(r"[^./\\\x00][^/\\\x00]*")


class Imported(NamedTuple):
    """Usable public results, and one line for each omission."""

    results: tuple[TaskScores, ...]
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
            f"No results under {path}; they belong in results/<org__name>/<revision>/<Task>.json or in a .parquet file."
        )
    return Imported(tuple(results), tuple(problems))


def of_results(results: Results) -> list[TaskScores]:
    """Results that were read as public ones, without what :func:`read_public` leaves out."""
    return _without_duplicates(_plausible(filter(_is_whole, results.tables.values()), []), [])


def _read_parquet(path: Path, problems: list[str]) -> Iterator[TaskScores]:
    import pyarrow as pa

    try:
        table = read_parquet(path, _COLUMNS)
        scores = table.column("main_score").cast(pa.float64()).to_numpy()
        text = table.drop_columns("main_score").to_pandas().astype("category")
    except (FileError, pa.ArrowException, ValueError) as error:
        raise ResultsError(f"{path} is not a table of results with the columns {', '.join(_COLUMNS)}.") from error
    values = {  # a missing one has the code -1, the place of the None at the end
        name: np.array([*map(str, column.cat.categories), None])[column.cat.codes] for name, column in text.items()
    }
    spoken = {value: spoken_codes(tuple(value.split())) for value in map(str, text["languages"].cat.categories)}
    for part in text.groupby([*_RUN], observed=True, dropna=False, sort=False).indices.values():
        model, revision, task, dataset_revision, version = (values[name][part[0]] for name in _RUN)
        if None in (model, revision, task):
            problems.append(f"{plural(len(part), 'row')} left out, without a model, revision or task")
            continue
        counts = Counter(values["metric"][part])
        # The table has one metric a row: a subset in which all is right has F1 equal to accuracy.
        metric = "f1" if "f1" in counts else max(METRICS, key=lambda name: counts.get(name, 0))
        least, frame, impossible = minimum([metric]), dict[tuple[str, str], tuple[str, ...]](), dict[str, str]()
        kept = []
        places = (values[name][part] for name in ("split", "subset", "languages"))
        for split, subset, languages, score in zip(*places, scores[part].tolist(), strict=True):
            key = str(split), str(subset)
            if reason := outside(score, least) or (key in frame and "it has several scores; the first counts"):
                impossible[key[1]] = str(reason)
            else:
                frame[key] = spoken.get(languages, ())
                kept.append(score)
        main = np.array(kept, np.float64)
        yield TaskScores(
            model=model.replace("__", "/", 1),
            revision=revision,
            task=task,
            dataset_revision=dataset_revision,
            trained_on=False,
            baseline=None,
            date=datetime.now(UTC),
            folder=path.parent,
            frame=Frame(tuple(s for s, _ in frame), tuple(s for _, s in frame), tuple(frame.values())),
            columns={MAIN: main, **({metric: main} if counts.get(metric) else {})},
            impossible=impossible,
            mteb_version=version,
        )


def _read_folder(path: Path, problems: list[str], tasks: Collection[str]) -> Iterator[TaskScores]:
    frames = dict[Frame, Frame]()
    for file in result_files(path):
        if tasks and file.stem not in tasks:
            continue
        try:
            table = read_result(file, frames=frames)
            if not _is_whole(table):
                raise FileError("a main score is missing")
            yield table
        except FileError as error:
            problems.append(f"{'/'.join(file.parts[-3:])}: left out, not a complete result ({error})")


def _is_whole(table: TaskScores) -> bool:
    return len(table.values()) + len(table.impossible) >= max(1, len(table.frame.subsets))


def _name(table: TaskScores) -> str:
    return f"{table.model} {table.revision} {table.task}"


def _plausible(results: Iterable[TaskScores], problems: list[str]) -> Iterator[TaskScores]:
    """Report impossible scores, and drop results without a possible one and runs with too many perfect ones."""
    possible, implausible = [], {}
    for result in results:
        if not all(map(_NAME.fullmatch, (*result.model.split("/"), result.revision, result.task))):
            problems.append(f"{_name(result)}: left out, a name that no folder can have")
            continue
        scores = [score for *_, score in result.rows()]
        if faults := [f"{subset}: {reason}" for subset, reason in result.impossible.items()]:
            total = len(scores) + len(faults)
            problems.append(f"{_name(result)}: {len(faults)} of {total} scores left out, e.g. {faults[0]}")
        if len(scores) >= FEWEST and (perfect := scores.count(1)) > SATURATED * len(scores):
            implausible[_run(result)] = f"{perfect} of {len(scores)} subsets of {result.task} are exactly 1"
        if scores:
            possible.append(result)
    for result in possible:
        if _run(result) in implausible:
            reason = implausible[_run(result)]
            problems.append(f"{_name(result)}: left out, in this run {reason}, as if few texts were scored")
        else:
            yield result


def _run(result: TaskScores) -> tuple[str | None, ...]:
    return result.model, result.revision, result.mteb_version


def _without_duplicates(results: Iterable[TaskScores], problems: list[str]) -> list[TaskScores]:
    """One result per model, task, text and metric: the one with most subsets, then of the newest mteb."""
    groups: dict[tuple[str, ...], list[TaskScores]] = defaultdict(list)
    for result in results:
        groups[result.model, result.task, result.dataset_revision or "", result.metric].append(result)
    chosen = []
    for _, group in sorted(groups.items()):
        if len(group) > 1:
            group.sort(key=lambda one: (len(one.rows()), version_key(one.mteb_version), one.revision), reverse=True)
        best, *others = group
        chosen.append(best)
        problems += [f"{_name(other)}: left out, {best.revision} has the same task" for other in others]
    return chosen


def version_key(version: str | None) -> tuple[int, ...]:
    """A version of mteb, such as 2.26.1, as numbers that compare."""
    return tuple(int(part) if part.isdigit() else 0 for part in (version or "0").split("."))


def comparable(results: Iterable[TaskScores]) -> list[dict[str, Any]]:
    """One row for each task, revision of its text and metric, within which results can be compared."""
    groups: dict[tuple[str, ...], list[TaskScores]] = defaultdict(list)
    for result in results:
        groups[result.task, result.dataset_revision or "", result.metric].append(result)
    return [
        {
            "task": task,
            "dataset_revision": short_revision(revision) or None,
            "metric": metric or None,
            "models": len({result.model for result in group}),
            "subsets": len({row[:2] for result in group for row in result.rows()}),
            "scores": sum(len(result.rows()) for result in group),
        }
        for (task, revision, metric), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]


def write_results(results: Iterable[TaskScores], root: Path, source: str) -> list[str]:
    """Write ``<root>/results/<org__name>/<revision>/<Task>.json`` of each result; return those left out.

    A file has one text and metric, so the others' results of a revision are left out. Each model's metadata records
    ``source``, the origin of the results.
    """
    written: set[Path] = set()
    left_out = []
    for result in results:
        folder = root / "results" / folder_name(result.model) / result.revision
        if (path := folder / f"{result.task}.json") in written:
            left_out.append(f"{_name(result)}: not written, {path.name} has another text or metric of this revision")
            continue
        written.add(path)
        atomic_write_text(path, json.dumps(_content(result), ensure_ascii=False))
        if not (folder / META).exists():
            meta: dict[str, Any] = {"name": result.model, "revision": result.revision, "imported_from": source}
            with suppress(FileError):
                if isinstance(prompts := read_meta(result.folder).arguments.get("model_prompts"), dict):
                    meta["loader_kwargs"] = {"model_prompts": prompts}
            atomic_write_text(folder / META, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    return left_out


def _content(result: TaskScores) -> dict[str, Any]:
    scores: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for split, subset, languages, score in result.rows():
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
