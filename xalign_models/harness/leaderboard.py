"""Tables of results: models x tasks with differences to the unaligned backbone, and one task by language."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

import numpy as np
import numpy.typing as npt

from xalign_models.errors import ResultsError
from xalign_models.harness.board import Board, Cell, Row
from xalign_models.harness.reading import MAIN, Results, TaskScores, into_and_from, language_pairs, read_published

logger = logging.getLogger(__name__)

Hits = dict[str, npt.NDArray[np.bool_]]

ALPHA = 0.05
MOST_TESTED = 5000
"""A result of more subsets is not tested: reading its items would take seconds."""
DIRECTIONS: dict[str, tuple[tuple[str, str], ...]] = {"Tatoeba36": (("eng→X", "eng_Latn-*"), ("X→eng", "*-eng_Latn"))}
"""Tasks whose two directions are two columns: their headers, and what X is in a subset's name."""
_SAME_METRIC = {"accuracy": "precision_at_1", "spearman": "cosine_spearman", "pearson": "cosine_pearson"}
"""Published names of metrics that mteb calls otherwise."""


def leaderboard(
    results: Results,
    *,
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
    metric: str = MAIN,
    significance: bool = True,
) -> Board:
    """Models x tasks: the mean over subsets, and the difference to the unaligned backbone over common subsets.

    Args:
        results: From :func:`xalign_models.harness.reading.read_results`.
        models: Names, with or without ``xalign/``; None is all.
        tasks: Names; None is all.
        metric: ``main_score`` is each task's own.
        significance: Test the differences of which ranks were kept item by item.

    Raises:
        ResultsError: No readable result is left, or a name has none.
    """
    rows = _rows(results, choose(results.models, models, "model"))
    hits = _Hits(metric) if significance else None
    for task in choose(results.tasks, tasks, "task"):
        for direction, pattern in DIRECTIONS.get(task, (("", "*"),)):
            found = {}
            for row in rows:
                table = results.tables.get((row.model, task))
                if table and (values := _matching(table, metric, pattern)):
                    base = results.tables.get((str(table.baseline), task))
                    found[row.model] = table.dataset_revision, frozenset(values), _cell(table, base, metric, pattern, hits)
            best = _best(found)
            for row in rows:
                if row.model in found:
                    cell = found[row.model][2]
                    row.cells[f"{task} {direction}".strip()] = dataclasses.replace(cell, best=row.model in best)
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    if not columns:
        raise _no_metric(results, metric)
    return Board("model", sorted(columns, key=_by_task(results.tasks)), rows, _legend(rows, metric, hits is not None))
