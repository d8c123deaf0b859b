"""Condenses public results to means by language."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.atlas.imported import Imported
from xalign_models.atlas.table import KINDS, Atlas, Column, PublishedModel
from xalign_models.files import read_parquet
from xalign_models.results.languages import language_code
from xalign_models.results.reading import TaskScores

EXCLUDED = {
    "LinceMTBitextMining": "its text mixes two languages",
    "PhincBitextMining": "its text mixes two languages",
    "NeuCLIR2023RetrievalHardNegatives": "its subsets do not name the language of the queries",
    "CrossLingualSemanticDiscriminationWMT19": "its candidates are perturbed on purpose",
    "CrossLingualSemanticDiscriminationWMT21": "its candidates are perturbed on purpose",
}
FEWEST_MODELS = 10
"""Models that a column needs to be part of the package."""
SEVERAL = 10
"""Languages that a multilingual model names at least."""
_KINDS = {
    "BitextMining": "bitext",
    "Retrieval": "retrieval",
    "Reranking": "retrieval",
    "STS": "sts",
    "Classification": "classification",
    "Clustering": "clustering",
}
_ENGLISH = "eng-Latn"


def columns_of(results: Iterable[TaskScores], kinds: Mapping[str, str], *, measured: bool = False) -> list[Column]:
    """Columns of comparable scores; within a task, the column with most models first.

    There is at most one result per model, task, revision of the text and metric. Tasks without a kind (``bitext``,
    ``retrieval``, ``sts`` or ``classification``) are left out. ``measured`` says that the scores are the user's own.
    """
    groups: dict[tuple[str, ...], list[TaskScores]] = defaultdict(list)
    for result in results:
        if result.task in kinds and result.task not in EXCLUDED and result.metric:
            splits = {split for split, *_ in result.rows()}
            split = "test" if "test" in splits else min(splits)
            groups[result.task, result.dataset_revision or "", split, result.metric].append(result)
    columns = [_column(key, group, kinds[key[0]], measured) for key, group in groups.items()]
    return sorted(
        (column for column in columns if column.languages),
        key=lambda column: (column.task, -len(column.models), column.dataset_revision, column.metric),
    )


def _column(key: tuple[str, ...], results: Sequence[TaskScores], kind: str, measured: bool) -> Column:
    task, dataset_revision, split, metric = key
    cells_of: dict[str, tuple[tuple[str, int], ...]] = {}
    for result in results:
        for part, subset, codes, _ in result.rows():
            if part == split and subset not in cells_of:
                cells_of[subset] = _cells(codes, kind)
    languages = sorted({language for cells in cells_of.values() for language, _ in cells})
    subsets = {subset: place for place, subset in enumerate(cells_of)}
    scores = np.full((len(results), len(subsets)), np.nan)
    for row, result in enumerate(results):
        for part, subset, _, score in result.rows():
            if part == split:
                scores[row, subsets[subset]] = score
    totals = np.zeros((len(results), len(languages), len(KINDS)))
    counts = np.zeros((len(languages), len(KINDS)), dtype=np.int16)
    order = {language: place for place, language in enumerate(languages)}
    for place, cells in enumerate(cells_of.values()):
        for language, cell in cells:
            totals[:, order[language], cell] += scores[:, place]  # a NaN makes the cell NaN: only whole cells count
            counts[order[language], cell] += 1
    with np.errstate(invalid="ignore"):
        means = totals / counts  # NaN in cells without subsets
    return Column(
        task=task,
        kind=kind,
        dataset_revision=dataset_revision,
        split=split,
        metric=metric,
        models=tuple(result.model for result in results),
        revisions=tuple(result.revision for result in results),
        versions=tuple(result.mteb_version or "" for result in results),
        languages=tuple(languages),
        counts=counts,
        scores=means,
        measured=frozenset(result.model for result in results if measured),
    )


def _cells(codes: Sequence[str], kind: str) -> tuple[tuple[str, int], ...]:
    """The cells (language, index in KINDS) that a subset belongs to."""
    languages = [language_code(code) for code in codes]
    if not 1 <= len(languages) <= 2 or None in languages:
        return ()
    first, second = str(languages[0]), str(languages[-1])
    if first == second:
        return ((first, KINDS.index("same")),)
    if first[:3] == second[:3]:
        return ()  # one language in two scripts is neither the same text nor another language
    # mteb names the language of the candidates first in retrieval and that of the queries first in bitext mining.
    directed = (second, first) if kind == "retrieval" else (first, second)
    cells = []
    for source, target in [directed, directed[::-1]] if kind == "sts" else [directed]:
        cells.append((target, KINDS.index("english_into" if source == _ENGLISH else "other_into")))
        cells.append((source, KINDS.index("english_from" if target == _ENGLISH else "other_from")))
    return tuple(cells)


def derive(
    imported: Imported, metadata: Iterable[Mapping[str, Any]], kinds: Mapping[str, str], source: dict[str, str]
) -> Atlas:
    """The condensed table.

    Args:
        imported: Public results.
        metadata: A model revision each, as mteb's registry describes it: name, release_date, n_parameters, embed_dim,
            license, open_weights, languages, training_datasets.
        kinds: As in :func:`columns_of`.
        source: Address, commit, date and licence of the results.
    """
    columns = [column for column in columns_of(imported.results, kinds) if len(column.models) >= FEWEST_MODELS]
    tasks = {column.task for column in columns}
    names = sorted({model for column in columns for model in column.models})
    merged: dict[str, dict[str, Any]] = defaultdict(dict)
    for entry in metadata:
        fields = merged[entry["name"]]
        fields.update({key: value for key, value in entry.items() if value is not None and key not in fields})
    models = {name: describe(name, merged[name], tasks) for name in names}
    several = [codes for entry in merged.values() if len(codes := _languages(entry)) >= SEVERAL]
    named = Counter(code for codes in several for code in {code[:3] for code in codes})
    return Atlas(models, tuple(columns), dict(sorted(named.items())), len(several), source)


def _languages(entry: Mapping[str, Any]) -> frozenset[str]:
    """Natural languages of an entry; the registry also lists programming languages."""
    return _natural(tuple(entry.get("languages") or ()))


@lru_cache(maxsize=1024)  # models of one backbone share their list
def _natural(texts: tuple[str, ...]) -> frozenset[str]:
    natural = (text.replace("_", "-") for text in texts if "Code" not in text)
    return frozenset(code for text in natural if (code := language_code(text)))


def describe(name: str, entry: Mapping[str, Any], tasks: Collection[str]) -> PublishedModel:
    """A model from its entry in mteb's registry, in which any field may be missing; ``tasks`` are the table's."""

    def positive(key: str) -> int | None:
        value = entry.get(key)
        return int(value) if isinstance(value, int | float) and 0 < value < math.inf else None

    declared = entry.get("training_datasets")
    return PublishedModel(
        name=name,
        release_date=entry.get("release_date"),
        parameters=positive("n_parameters"),
        dimension=positive("embed_dim"),
        max_tokens=positive("max_tokens"),
        licence=entry.get("license"),
        open_weights=entry.get("open_weights"),
        languages=len(_languages(entry)),
        trained_on=None if declared is None else tuple(sorted({*tasks} & {*declared})),
        prompts=entry.get("use_instructions"),
        reference=entry.get("reference"),
    )


def read_metadata(path: Path) -> list[dict[str, Any]]:
    """The registry's description of each model revision, from a Parquet file with JSON in each cell."""
    import mteb

    rows: list[dict[str, Any]] = read_parquet(path).to_pylist()
    prompts = {meta.name: meta.use_instructions for meta in mteb.get_model_metas()}
    for row in rows:
        row.update({key: json.loads(row[key]) for key in row.keys() - {"model", "revision"} if row[key] is not None})
        row["name"] = row["model"].replace("__", "/", 1)
        row["use_instructions"] = prompts.get(row["name"])
    return rows


def task_kinds(tasks: Iterable[str], problems: list[str]) -> dict[str, str]:
    """The kind of each task, from mteb's registry; other types are left out, unknown tasks named in ``problems``."""
    import mteb

    types = {}
    for task in sorted(tasks):
        try:
            types[task] = mteb.get_task(task).metadata.type
        except KeyError:
            problems.append(f"{task}: left out, the installed mteb does not know this task")
    return {task: _KINDS[kind] for task, kind in types.items() if kind in _KINDS}
