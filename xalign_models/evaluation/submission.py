"""Checks results against the rules of mteb's public results repository.

https://github.com/embeddings-benchmark/results checks each pull request: names and revisions of folders, metadata,
result files that mteb can read, settings that cover every score, and no task twice.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

from xalign_models.errors import FileError, ResultsError, one_line
from xalign_models.files import read_json, read_log
from xalign_models.results.layout import META, SETTINGS, folder_name, results_folder

_LEAST_MTEB = 2
"""Minimum major version of mteb."""


def problems(root: Path) -> list[str]:
    """Reasons why the repository would refuse results, one line each; empty if it would accept.

    Args:
        root: The parent folder of ``results/``, or that folder.

    Raises:
        ResultsError: There are no results.
    """
    folder = results_folder(root)
    models = sorted(path for path in folder.glob("[!.]*") if path.is_dir())
    if not models:
        raise ResultsError(f"No results under {folder}; score models with `xalign run`, or name another folder.")
    return [line for model in models for line in _of_model(model)]


def _of_model(model: Path) -> Iterator[str]:
    revisions: dict[str, list[str]] = defaultdict(list)
    for revision in sorted(path for path in model.iterdir() if not path.name.startswith(".")):
        place = f"{model.name}/{revision.name}"
        if not revision.is_dir():
            yield f"{place}: a file where only folders of revisions may be"
            continue
        yield from _of_meta(place, model, revision)
        settings = _settings(revision / SETTINGS)
        for path in sorted(revision.glob("*.json")):
            if path.name != META:
                revisions[path.stem].append(revision.name)
                yield from _of_result(f"{place}/{path.name}", path, settings)
    for task, names in revisions.items():
        if len(names) > 1:
            yield f"{model.name}: {task} is there under {len(names)} revisions, {', '.join(names)}; keep one"


def _of_meta(place: str, model: Path, revision: Path) -> Iterator[str]:
    try:
        meta = read_json(revision / META)
        name, number = str(meta["name"]), str(meta["revision"])
    except (FileError, KeyError) as error:
        damaged = f"{place}/{META} is no model's metadata ({one_line(error)})"
        yield damaged if (revision / META).exists() else f"{place}: {META} is missing"
        return
    if "/" not in name:
        yield f"{place}/{META}: the name {name!r} has no organisation; write org/name"
    if folder_name(name) != model.name:
        yield f"{place}/{META}: the name {name!r} differs from the folder's"
    if number != revision.name:
        yield f"{place}/{META}: the revision {number!r} differs from the folder's"
    if not re.fullmatch(r"[0-9a-f]{40}|.", number):
        yield f"{place}: the revision has {len(number)} characters, not 40 hexadecimal digits or a single one"


def _settings(path: Path) -> set[tuple[str, str, str]] | None:
    """(task, split, subset) that the settings cover; None if there are no readable settings."""
    try:
        lines, damaged = read_log(path)
        groups = [product([entry["task"]], entry["splits"], entry["subsets"]) for entry in lines]
        covered = {*chain.from_iterable(groups)}
    except (FileError, KeyError, TypeError):
        return None
    return covered if path.is_file() and not damaged else None


def _of_result(place: str, path: Path, settings: set[tuple[str, str, str]] | None) -> Iterator[str]:
    from mteb.results import TaskResult

    try:
        read_json(path)  # within bounds
        result: Any = TaskResult.from_disk(path)
    except Exception as error:  # a damaged file may make mteb raise anything
        yield f"{place} is not a result that mteb can read ({type(error).__name__})"
        return
    if result.task_name != path.stem:
        yield f"{place} is a result of the task {result.task_name!r}"
    if not (version := re.match(r"\d+", str(result.mteb_version))) or int(version[0]) < _LEAST_MTEB:
        yield f"{place}: made with mteb {result.mteb_version}; {_LEAST_MTEB} or newer is required"
    if settings is None:
        yield f"{place}: {SETTINGS} is missing or damaged"
        return
    scored = {(result.task_name, split, row["hf_subset"]) for split, rows in result.scores.items() for row in rows}
    if missing := sorted(scored - settings):
        yield f"{place}: {SETTINGS} does not cover {len(missing)} of its scores, such as {'/'.join(missing[0][1:])}"
