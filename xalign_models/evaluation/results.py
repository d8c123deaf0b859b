"""Results as plain data: mteb's result files and the published tables, read without mteb."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from xalign_models.assets import CARD
from xalign_models.errors import DataError, ResultsError

logger = logging.getLogger(__name__)

MAIN = "main_score"
_NO_RESULT = {CARD, "model_meta.json"}
_PAIR = re.compile(r"([a-z]{3}_[A-Z][a-z]{3})-([a-z]{3}_[A-Z][a-z]{3})")


@dataclass(frozen=True)
class TaskScores:
    """What one model scored on one task.

    Attributes:
        model: Its name.
        revision: The model's, and the folder's name.
        task: Its name.
        dataset_revision: The text that was scored.
        trained_on: Whether the model's training data name the task.
        baseline: Name of the same backbone, unaligned; None for itself and for models that are not ours.
        date: Of the run; of the file where the run left none.
        folder: Where the file lies; outcomes item by item are in ``items/<task>.npz`` below it.
        entries: (split, subset, languages, metric -> value) as in the file, numbers only.
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
        root: The folder that has ``results/``.
        tables: By (model, task), in the order of their names.
        unreadable: Files that were skipped, by (model, task); no older revision stands in for them.
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
    """Read ``<root>/results/<org__name>/<revision>/<Task>.json`` of all models.

    If a model has a task under several revisions, the newest counts, by the date of its ``xalign.json`` or else of the
    file; a warning names those that do not. A file that cannot be read is skipped with a warning and kept in
    ``unreadable``.

    Args:
        root: The folder that has ``results/``, or that folder.
        tasks: Read only these; None is all.

    Raises:
        ResultsError: There are no results at all.
    """
    folder = root / "results" if (root / "results").is_dir() else root
    paths = [
        path
        for path in sorted(folder.glob("*/*/*.json"))
        if path.name not in _NO_RESULT and not path.name.startswith(".") and "__" in path.parts[-3]
    ]
    if not paths:
        raise ResultsError(f"No results under {folder}; `xalign run` makes them, or name another folder.")
    cards = {directory: _read_card(directory) for directory in {path.parent for path in paths}}
    newest: dict[tuple[str, str], Path] = {}
    dropped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for path in sorted(paths, key=lambda path: (_date(path, cards[path.parent]), path)):
        if tasks is not None and path.stem not in tasks:
            continue
        key = (cards[path.parent]["name"], path.stem)
        if key in newest:
            dropped[key[0], newest[key].parent.name, path.parent.name].append(path.stem)
        newest[key] = path
    for (model, older, newer), names in dropped.items():
        logger.warning(
            "%s: revision %s is ignored for the newer %s on %s; `xalign fit --label` gives a model a name of its own.",
            model, older, newer, ", ".join(names),
        )  # fmt: skip
    tables, unreadable = {}, {}
    for key, path in sorted(newest.items()):
        try:
            tables[key] = _read_task(path, cards[path.parent])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            logger.warning("%s is skipped, it is no whole result (%s); `xalign run` makes it anew.", path, reason)
            unreadable[key] = path
    return Results(root, tables, unreadable)


def _read_card(directory: Path) -> dict[str, Any]:
    """``xalign.json`` and what we need of ``model_meta.json``; a missing or damaged one is as if it were empty."""
    card: dict[str, Any] = {}
    for name, keys in (("model_meta.json", ("name", "training_datasets")), (CARD, ("name", "baseline", "date"))):
        try:
            data = json.loads((directory / name).read_text(encoding="utf-8"))
            card |= {key: data[key] for key in keys if data.get(key) is not None}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError):
            logger.warning("%s is damaged and left aside; `xalign run` writes it anew.", directory / name)
    return {"name": directory.parent.name.replace("__", "/", 1), **card}


def _date(path: Path, card: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(card["date"]).astimezone()
    except (KeyError, TypeError, ValueError):
        return datetime.fromtimestamp(path.stat().st_mtime).astimezone()


def _read_task(path: Path, card: Mapping[str, Any]) -> TaskScores:
    data = json.loads(path.read_text(encoding="utf-8"))
    entries = tuple(
        (split, str(entry["hf_subset"]), tuple(entry.get("languages", ())), _numbers(entry))
        for split, subsets in data["scores"].items()
        for entry in subsets
    )
    return TaskScores(
        model=card["name"],
        revision=path.parent.name,
        task=path.stem,
        dataset_revision=data.get("dataset_revision"),
        trained_on=path.stem in card.get("training_datasets", ()),
        baseline=card.get("baseline"),
        date=_date(path, card),
        folder=path.parent,
        entries=entries,
    )


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)
    }


def language_pairs(subsets: Iterable[str]) -> dict[str, tuple[str, str]] | None:
    """``deu_Latn-eng_Latn`` -> (``deu_Latn``, ``eng_Latn``) for each subset; None unless all are such pairs."""
    matches = {subset: _PAIR.fullmatch(subset) for subset in subsets}
    pairs = {subset: (match[1], match[2]) for subset, match in matches.items() if match}
    return pairs if len(pairs) == len(matches) else None


def into_and_from(scores: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Means by target and by source language of a score by subset ``a-b``.

    Returns:
        (Into X, From X), keyed by the language as it stands in the subsets, sorted.

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


@dataclass(frozen=True)
class Published:
    """One number of a published table.

    Attributes:
        column: Model, variant and paper.
        subset: As published: ``deu-Latn``, ``eng-Latn->deu-Latn``, ``eng-Latn->*``, ``average`` and the like.
        direction: ``eng->other`` or ``other->eng`` where the subset does not say it.
        metric: As published, e.g. ``accuracy``.
        value: In percent.
        whole: Whether an average is over all subsets of the task, so that it says something without its parts.
    """

    column: str
    subset: str
    direction: str
    metric: str
    value: float
    whole: bool = False


def read_published(root: Path, task: str) -> Iterator[Published]:
    """The published numbers on a task, in percent, by ``results/published/index.json``; none if that is not there."""
    folder = (root / "results" if (root / "results").is_dir() else root) / "published"
    if not (folder / "index.json").is_file():
        return
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    ignored = {"task", "subset", "metric", "value", "unit", "direction", "printed", "row", "column", "params", "year"}
    for entry in index["files"]:
        if task not in entry["compares_with"]:
            continue
        with (folder / entry["file"]).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["task"] == task and row["unit"] in {"percent", "fraction"}:
                    parts = {key: text for key, text in row.items() if key not in ignored and text}
                    variant = " ".join(f"{key} {text}" if text.isdecimal() else text for key, text in parts.items())
                    value = float(row["value"]) * (100 if row["unit"] == "fraction" else 1)
                    column = f"{variant} [{entry['paper']}]"
                    whole = entry.get("whole", False)
                    yield Published(column, row["subset"], row.get("direction", ""), row["metric"], value, whole)
