"""The condensed table of public results, means by language; it loads fast and without pandas."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, ResultsError
from xalign_models.files import read_npz
from xalign_models.linalg.arrays import Float64

KINDS = ("same", "english_into", "english_from", "other_into", "other_from")
"""Kinds of cells of a language L. Queries are in the source language, candidates in the target.

``same``: queries and candidates in L. ``english_into``: from English into L. ``english_from``: from L into English.
``other_into``: into L from each further language. ``other_from``: from L into each further language. English has no
``english_*``; its pairs are ``other_*``. A similarity has no direction: a pair counts as into and from.
"""
TASKS = ("retrieval", "bitext", "sts", "classification", "clustering")
"""Kinds of tasks."""
DATA = "public_results.npz"
SCALE = 10_000
"""Scores are kept as 16-bit integers: ten-thousandths."""
_TABLE = "table_"  # before the names of the table's arrays
MISSING = np.iinfo(np.int16).min
_ABOUT = ("task", "kind", "dataset_revision", "split", "metric")


@dataclass(frozen=True)
class PublishedModel:
    """A model's entry in mteb's registry.

    Attributes:
        name: Hub id.
        release_date: ISO date, or None.
        parameters: Number of parameters, or None.
        dimension: Length of its vectors, or None.
        max_tokens: Length limit, or None.
        licence: As the registry names it, or None.
        open_weights: Whether its weights can be downloaded, or None.
        languages: Number of languages in its entry.
        trained_on: Tasks of the table whose training data the model has seen, as its authors declare, or None.
        prompts: Whether it needs prompts or instructions, or None.
        reference: Address of its page, or None.
    """

    name: str
    release_date: str | None = None
    parameters: int | None = None
    dimension: int | None = None
    max_tokens: int | None = None
    licence: str | None = None
    open_weights: bool | None = None
    languages: int = 0
    trained_on: tuple[str, ...] | None = None
    prompts: bool | None = None
    reference: str | None = None


@dataclass(frozen=True, eq=False)
class Column:
    """Comparable scores: one task, one revision of its text, one split, one metric.

    Attributes:
        task: Name of the task.
        kind: One of ``TASKS``.
        dataset_revision: Revision of the text; empty if unknown.
        split: Split of the text.
        metric: Name of the main score.
        models: Names of the models, one per row of ``scores``.
        revisions: Revision of each model.
        versions: Version of mteb that scored each model; empty if unknown.
        languages: Canonical codes, one per column of ``scores``.
        counts: (languages, kinds) number of subsets that a complete cell averages.
        scores: (models, languages, kinds) means between -1 and 1; NaN where a model lacks any subset of the cell.
        measured: Models whose scores are the user's own.
    """

    task: str
    kind: str
    dataset_revision: str
    split: str
    metric: str
    models: tuple[str, ...]
    revisions: tuple[str, ...]
    versions: tuple[str, ...]
    languages: tuple[str, ...]
    counts: npt.NDArray[np.int16]
    scores: Float64
    measured: frozenset[str] = frozenset()

    @cached_property
    def row(self) -> dict[str, int]:
        """The row of each model."""
        return {model: row for row, model in enumerate(self.models)}

    def mean(self, *kinds: str) -> Float64:
        """Means (models, languages) over the subsets of several kinds; kinds that a language lacks do not count.

        ``mean("english_into", "other_into")`` is the mean of all subsets into a language.
        """
        chosen = [KINDS.index(kind) for kind in kinds]
        weights = self.counts[:, chosen].astype(np.float64)
        # A kind that no model has does not count; one that this model lacks makes the mean NaN.
        weighted = np.where(weights > 0, self.scores[:, :, chosen] * weights, 0.0)
        total = weights.sum(axis=1)
        return np.where(total > 0, weighted.sum(axis=2) / np.maximum(total, 1), np.nan)

    @property
    def label(self) -> str:
        """The task, and the revision of its text in short."""
        return f"{self.task}@{short_revision(self.dataset_revision)}" if self.dataset_revision else self.task


@dataclass(frozen=True, eq=False)
class Atlas:
    """The whole table.

    Attributes:
        models: Entries in the registry, by name.
        columns: Comparable scores; within a task, the column with most models first.
        named: Number of multilingual models whose registry entry names a language, by ISO 639-3 code.
        multilingual: Number of models that name ten languages or more.
        source: Where the results come from: address, commit, date, licence.
        table: The arrays of :class:`Scores <xalign_models.atlas.scores.Scores>`, measured and predicted scores.
    """

    models: dict[str, PublishedModel]
    columns: tuple[Column, ...]
    named: dict[str, int]
    multilingual: int
    source: dict[str, str]
    table: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    def column(self, task: str, dataset_revision: str = "") -> Column:
        """The column of a task, for a revision of its text (a prefix suffices) or with most models.

        Raises:
            ResultsError: There is none.
        """
        for column in self.columns:
            if column.task == task and column.dataset_revision.startswith(dataset_revision):
                return column
        tasks = ", ".join(sorted({column.task for column in self.columns}))
        raise ResultsError(f"The atlas has no scores of {task}@{dataset_revision}; it has {tasks}.")

    def low_resource(self, language: str) -> bool:
        """Whether fewer than a quarter of the multilingual models name the language."""
        return 4 * self.named.get(language[:3], 0) < self.multilingual


def short_revision(revision: str) -> str:
    """Seven digits of a commit, 13 characters of any other revision."""
    return revision[:7] if re.fullmatch("[0-9a-f]{40}", revision) else revision[:13]


def scaled(values: Float64, scale: int = SCALE) -> npt.NDArray[np.int16]:
    """Scores as 16-bit integers, by default ten-thousandths; NaN becomes ``MISSING``."""
    return np.where(np.isnan(values), MISSING, np.rint(np.nan_to_num(values) * scale)).astype(np.int16)


def unscaled(values: npt.NDArray[np.int16]) -> Float64:
    """The inverse of :func:`scaled`."""
    return np.where(values == MISSING, np.nan, values / SCALE)


def save(atlas: Atlas, path: Path) -> None:
    """Write the table; the same table gives the same bytes."""
    order = {name: place for place, name in enumerate(atlas.models)}
    revisions = sorted({revision for column in atlas.columns for revision in column.revisions})
    places = {revision: place for place, revision in enumerate(revisions)}
    header = {
        "source": atlas.source,
        "multilingual": atlas.multilingual,
        "named": atlas.named,
        "models": [vars(model) for model in atlas.models.values()],
        "columns": [
            {
                "about": [getattr(column, name) for name in _ABOUT],
                "models": [order[model] for model in column.models],
                "revisions": [places[revision] for revision in column.revisions],
                "versions": column.versions,
                "languages": column.languages,
            }
            for column in atlas.columns
        ],
        "revisions": revisions,
    }
    arrays = {f"{_TABLE}{name}": part for name, part in atlas.table.items()}
    for place, column in enumerate(atlas.columns):
        arrays[f"scores{place}"] = np.ascontiguousarray(scaled(column.scores).transpose(2, 1, 0))
        arrays[f"counts{place}"] = column.counts
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    with path.open("wb") as file:  # a path without .npz would get it
        np.savez_compressed(file, allow_pickle=False, header=np.frombuffer(text, dtype=np.uint8), **arrays)


def load_atlas(path: Path | None = None) -> Atlas:
    """Read the table; by default the one of the package.

    Raises:
        ResultsError: The file is not such a table.
    """
    if path is None:
        return _packaged()
    try:
        return _read(path)
    except (FileError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path} is not an atlas table; write one with `xalign atlas update`.") from error


@cache
def _packaged() -> Atlas:
    with as_file(files("xalign_models.atlas") / "data" / DATA) as path:
        return _read(path)


def _read(path: Path) -> Atlas:
    file = read_npz(path, most=2 << 30)
    header = json.loads(file["header"].tobytes())
    models = [
        PublishedModel(**fields | {"trained_on": None if (tasks := fields["trained_on"]) is None else tuple(tasks)})
        for fields in header["models"]
    ]
    columns = tuple(
        Column(
            **dict(zip(_ABOUT, entry["about"], strict=True)),
            models=tuple(models[place].name for place in entry["models"]),
            revisions=tuple(header["revisions"][place] for place in entry["revisions"]),
            versions=tuple(entry["versions"]),
            languages=tuple(entry["languages"]),
            counts=file[f"counts{number}"],
            scores=unscaled(file[f"scores{number}"]).transpose(2, 1, 0),
        )
        for number, entry in enumerate(header["columns"])
    )
    return Atlas(
        {model.name: model for model in models},
        columns,
        header["named"],
        header["multilingual"],
        header["source"],
        {name.removeprefix(_TABLE): part for name, part in file.items() if name.startswith(_TABLE)},
    )
