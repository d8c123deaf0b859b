"""All results as a plain table: a line per model, task and language, to read and to ``diff``."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from math import fsum
from statistics import fmean

from xalign_models.boards.leaderboard import choose_models
from xalign_models.results.languages import language_weights
from xalign_models.results.reading import Results
from xalign_models.tables.escaping import escape


def means_csv(results: Results, models: Collection[str] | None = None, languages: Collection[str] | None = None) -> str:
    """Main scores in percent as CSV: the mean over subsets of each model and task, then a line per language.

    In tasks of pairs, a language has the mean of Into X and From X; other tasks have a line per subset. ``models``
    chooses some, by any name that ``xalign run`` takes; ``languages`` chooses subsets, as in the leaderboard.

    Raises:
        ResultsError: A model has no results.
    """
    chosen = set(choose_models(results.models, models))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("model", "task", "language", "score"))
    subsets = {task: languages and results.subsets(task, chosen, languages) for task in results.tasks}
    for (model, task), table in results.tables.items():
        if model in chosen and (values := table.values(subsets=subsets[task])):
            means = {"mean": fmean(values.values())}
            for row, weights in sorted(language_weights(values).items()):
                means.setdefault(row, fsum(weight * values[subset] for subset, weight in weights.items()))
            names = [escape(model, "csv"), escape(task, "csv")]
            writer.writerows((*names, escape(key, "csv"), f"{100 * mean:.2f}") for key, mean in means.items())
    return text.getvalue()
