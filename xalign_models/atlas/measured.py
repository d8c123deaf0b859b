"""Adds the user's own results to the published ones, in the same column if text, split and metric are the same."""

from dataclasses import replace

import numpy as np

from xalign_models.atlas.derive import columns_of, describe
from xalign_models.atlas.imported import of_results, version_key
from xalign_models.atlas.scores import scores_of, with_models, with_table
from xalign_models.atlas.table import Atlas, Column
from xalign_models.results.reading import Results

_KINDS = {
    "precision_at_1": "bitext",
    "f1": "bitext",
    "ndcg_at_10": "retrieval",
    "map": "retrieval",
    "cosine_spearman": "sts",
    "accuracy": "classification",
    "v_measure": "clustering",
}
SAME_TEXT = {
    ("NTREXBitextMining", "local-26f2a5c13305"): ("NTREXBitextMining", "ed9a4403ed4adbfaf4aab56d5b2709e9f6c3ba33"),
    ("STS17CrossLingual", "local-2d18f6179d38"): ("STS17", "faeb762787bd10488a50c8b5be4a3b82e411949c"),
}
"""Our tasks and texts that equal published ones: all-MiniLM-L6-v2 reproduces its published scores on them exactly."""


def with_measured(atlas: Atlas, read: Results) -> Atlas:
    """The atlas with results that were read.

    A measured model joins a published column if task, revision of the text, split, metric and the number of subsets of
    each mean agree; otherwise it gets a column of its own.

    A result of a published model replaces the published one if no older version of mteb made it. Scores of other models
    stay as they are.
    """
    results = of_results(read)
    kinds_of_tasks = {column.task: column.kind for column in atlas.columns}
    kinds = {result.task: _KINDS[result.metric] for result in results if result.metric in _KINDS} | kinds_of_tasks
    published = {_key(column): place for place, column in enumerate(atlas.columns)}
    columns = list(atlas.columns)
    for column in columns_of(results, kinds, measured=True):
        place = published.get(_key(column))
        if place is None:
            columns.append(column)
        else:
            columns[place] = join(columns[place], column)
    folders = {table.model: table.folder for table in read.tables.values()}
    names = {result.model for result in results}
    models = {name: describe(name, read.metadata.get(folders[name], {}), kinds_of_tasks) for name in sorted(names)}
    merged = replace(atlas, columns=tuple(columns), models={**models, **atlas.models})
    changed = sorted({model for column in columns[: len(atlas.columns)] for model in column.measured})
    if not atlas.table or not changed:
        return merged
    return with_table(merged, with_models(scores_of(atlas), atlas, merged, changed))


def _key(column: Column) -> tuple[str, ...]:
    text = column.task, column.dataset_revision
    return (*SAME_TEXT.get(text, text), column.split, column.metric)


def join(published: Column, measured: Column) -> Column:
    """The published column with the measured models, new ones and newer ones; cells of other subsets are NaN."""
    rows = [
        row
        for row, model in enumerate(measured.models)
        if model not in published.row
        or version_key(measured.versions[row]) >= version_key(published.versions[published.row[model]])
    ]
    scores = np.full((len(rows), len(published.languages), measured.scores.shape[2]), np.nan)
    _, ours, theirs = np.intersect1d(published.languages, measured.languages, return_indices=True)
    same = published.counts[ours] == measured.counts[theirs]
    scores[:, ours] = np.where(same, measured.scores[rows][:, theirs], np.nan)
    newer = {measured.models[row]: number for number, row in enumerate(rows)}
    for model, number in newer.items():
        if model in published.row:  # what was not measured again stays
            scores[number] = np.where(np.isnan(scores[number]), published.scores[published.row[model]], scores[number])
    kept = [row for row, model in enumerate(published.models) if model not in newer]

    def joined(name: str) -> tuple[str, ...]:
        old, new = getattr(published, name), getattr(measured, name)
        return (*(old[row] for row in kept), *(new[row] for row in rows))

    return replace(
        published,
        models=joined("models"),
        revisions=joined("revisions"),
        versions=joined("versions"),
        measured=published.measured | newer.keys(),
        scores=np.concatenate([published.scores[kept], scores]),
    )
