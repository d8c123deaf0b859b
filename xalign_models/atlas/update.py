"""A fresh table from a newer clone or copy of the public results, and what it changes for a language."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.atlas.derive import EXCLUDED, derive, read_metadata, task_kinds
from xalign_models.atlas.factors import cells_of
from xalign_models.atlas.imported import read_public
from xalign_models.atlas.scores import estimate, main_columns, scores_of, with_table
from xalign_models.atlas.table import TASKS, Atlas, load_atlas
from xalign_models.files import read_bytes
from xalign_models.paths import cache_dir


def place() -> Path:
    """The file that ``xalign atlas update`` writes, in the cache."""
    return cache_dir() / "atlas" / "public_results.npz"


def current() -> Atlas:
    """The table of the last update, else the packaged one."""
    return load_atlas(place() if place().exists() else None)


def refresh(path: Path, before: Atlas) -> tuple[Atlas, list[str]]:
    """The table of public results, and what was left out.

    Args:
        path: A clone, or a Parquet file; ``models.parquet`` beside it describes the models, or mteb's registry.
        before: The table before; it says what is known of models that nothing else describes.

    Raises:
        ResultsError: There are no results.
    """
    imported = read_public(path)
    beside = path.parent / "models.parquet"
    names = {result.model for result in imported.results}
    metadata = read_metadata(beside) if path.suffix == ".parquet" and beside.exists() else _registered(names)
    kinds = {column.task: column.kind for column in before.columns}
    unknown = {result.task for result in imported.results} - kinds.keys() - EXCLUDED.keys()
    problems = list(imported.problems)
    atlas = derive(imported, metadata, kinds | task_kinds(unknown, problems), provenance(path))
    undescribed = before.models.keys() & atlas.models.keys() - {entry["name"] for entry in metadata}
    atlas = replace(atlas, models=atlas.models | {name: before.models[name] for name in sorted(undescribed)})
    return with_table(atlas, estimate(atlas)), problems


def _registered(names: set[str]) -> list[dict[str, Any]]:
    import mteb

    return [meta.model_dump() for meta in mteb.get_model_metas() if meta.name in names]


def provenance(path: Path) -> dict[str, str]:
    """Address, commit, date and licence of a copy, from git for a clone, from SOURCE.md for a file; else empty."""
    address = commit = date = ""
    if path.is_dir() and shutil.which("git"):
        git = ["git", "-c", "core.fsmonitor=false", "-C", str(path)]
        asked = ("remote", "get-url", "origin"), ("log", "-1", "--format=%H"), ("log", "-1", "--format=%cs")
        done = [subprocess.run([*git, *words], capture_output=True, text=True, check=False) for words in asked]
        address, commit, date = (run.stdout.strip() for run in done)
    about = path / "LICENSE" if path.is_dir() else path.parent / "SOURCE.md"
    text = read_bytes(about, most=1 << 20).decode(errors="replace") if about.is_file() else ""
    if not path.is_dir():
        patterns = r"github\.com/[\w-]+/[\w.-]+", r"\b[0-9a-f]{40}\b", r"\b20\d\d-\d\d-\d\d\b"
        address, commit, date = (found[0] if (found := re.search(part, text)) else "" for part in patterns)
        address = address and f"https://{address}"
    licence = "CC0-1.0" if re.search(r"CC0[- ]1\.0", text) else ""
    return {"address": address or path.name, "commit": commit, "date": date, "licence": licence}


def changes(before: Atlas, after: Atlas, language: str) -> Iterator[dict[str, Any]]:
    """Models that are new or gone, or whose score on all tasks moved by a tenth of a point, by kind of task."""
    for kind in TASKS:
        (old, one), (new, other) = (_measured(atlas, kind, language) for atlas in (before, after))
        for model in sorted({*old, *new}):
            if old.get(model) != new.get(model) and model in (one & other) | (old.keys() ^ new.keys()):
                yield {"kind": kind, "model": model, "before": old.get(model), "after": new.get(model)}


def _measured(atlas: Atlas, kind: str, language: str) -> tuple[dict[str, float], set[str]]:
    """The scores in points of the models that were measured, and those that lack no task, whose score is exact."""
    scores, main, tasks = scores_of(atlas), main_columns(atlas.columns), dict[str, list[int]]()
    columns = [column for column in atlas.columns if column.kind == kind and column.label in main]
    cells, values = cells_of(columns, scores.models)
    for place, cell in enumerate(cells):
        if cell.language == language:
            tasks.setdefault(cell.task, []).append(place)
    if not tasks:
        return {}, set()
    exact = np.mean([values[:, places].mean(axis=1) for places in tasks.values()], axis=0)
    row, whole = scores.row(kind, language), np.isfinite(exact)
    points = np.round(100 * np.where(whole, exact, row.score), 1).tolist()
    measured = {scores.models[at]: points[at] for at in np.flatnonzero(row.measured)}
    return measured, {model for model, known in zip(scores.models, whole, strict=True) if known}
