"""Tables of results: models x tasks with differences to the unaligned backbone, and one task by language."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from statistics import fmean

import numpy as np

from xalign_models.errors import ModelError, ResultsError
from xalign_models.published import published_on
from xalign_models.results.intervals import half_width, rank_intervals
from xalign_models.results.items import Items, equal_weights
from xalign_models.results.languages import code, into_and_from, language_pairs
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import Results, TaskScores
from xalign_models.results.significance import ALPHA, sign_flip_test
from xalign_models.tables.board import Board, Cell, Row

DIRECTIONS: dict[str, dict[str, str]] = {"Tatoeba36": {"eng→X": "eng_Latn-*", "X→eng": "*-eng_Latn"}}
"""Tasks with a column per direction: headers and subsets."""
_SAME_METRIC = {"accuracy": "precision_at_1", "spearman": "cosine_spearman", "pearson": "cosine_pearson"}
"""Metrics with other names in papers than in mteb."""


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
        results: From :func:`xalign_models.results.reading.read_results`.
        models: Names, with or without ``xalign/``, directories or hub ids; None for all.
        tasks: Names; None for all.
        metric: ``main_score`` for each task's own.
        significance: Test differences where ranks by item were kept.

    Raises:
        ResultsError: There is no readable result, or a name has none.
    """
    rows = {row.name: row for row in _empty_rows(results, choose_models(results.models, models))}
    hits = Items(metric) if significance else None
    columns: list[str] = []
    for task in choose(results.tasks, tasks, "task"):
        for direction, pattern in DIRECTIONS.get(task, {"": "*"}).items():
            column = f"{task} {direction}".strip()
            rivals: dict[tuple[str | None, frozenset[str]], list[str]] = {}
            for name, row in rows.items():
                table = results.tables.get((name, task))
                if table and (values := _matching(table, metric, pattern)):
                    base = results.tables.get((table.baseline or "", task))
                    row.cells[column] = _cell(table, base, metric, pattern, hits)
                    rivals.setdefault((table.dataset_revision, frozenset(values)), []).append(name)
            if rivals:
                columns.append(column)
                widest = max(rivals, key=lambda key: len(key[1]))
                _mark_best([rows[name].cells for name in rivals[widest]], column)
                if hits:
                    tables = {name: results.tables[name, task] for name in rivals[widest]}
                    _mark_ranks(rows, column, tables, widest[1], hits)
    if not columns:
        metrics = sorted({name for table in results.tables.values() for name in table.metrics})
        raise ResultsError(f"No readable result has {metric!r}; there are {', '.join(metrics) or 'none'}.")
    shown = [row for row in rows.values() if row.cells]
    return Board("model", columns, shown, _legend(shown, metric))


def choose(names: Sequence[str], chosen: Collection[str] | None, kind: str) -> list[str]:
    """The chosen ones of ``names`` in their order; the prefix ``xalign/`` is optional.

    Raises:
        ResultsError: A name is unknown; the message suggests the nearest.
    """
    if chosen is None:
        return list(names)
    for name in chosen:
        if not {name, f"xalign/{name}"} & set(names):
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
            raise ResultsError(f"No results of {kind} {name!r}; there are results of {', '.join(near) or 'none'}.")
    return [name for name in names if name in chosen or name.removeprefix("xalign/") in chosen]


def choose_models(names: Sequence[str], chosen: Collection[str] | None, kind: str = "model") -> list[str]:
    """Like :func:`choose` for models, by any name that ``xalign run`` takes.

    Raises:
        ResultsError: A name is unknown; the message suggests the nearest.
    """
    return choose(names, chosen and [_name_in_results(model, names) for model in chosen], kind)


def _name_in_results(model: str, names: Sequence[str]) -> str:
    """Name of a model in the results; the given name if they do not have it."""
    if {model, f"xalign/{model}"} & set(names):
        return model
    from xalign_models.models.names import name_of

    try:
        name = name_of(model)
    except ModelError:
        return model
    return name if name in names else model


def _empty_rows(results: Results, models: Collection[str]) -> list[Row]:
    """Rows by backbone, the unaligned model first; models without a backbone of ours come last."""
    baselines = {model: table.baseline for (model, _), table in results.tables.items()}
    keyed = []
    for model in models:
        base = baselines[model] or model
        if base.startswith("xalign/"):
            group = base.removeprefix("xalign/").removeprefix("plain__")
            label, *data = model.removeprefix("xalign/").replace(f"__{group}", "", 1).split("__")
            label += f" ({', '.join(data)})" if data else ""
        else:
            group, label = "other models", model
        keyed.append(((group == "other models", group, model != base, label), Row(group, label, model, {})))
    return [row for _, row in sorted(keyed, key=lambda item: item[0])]


def _matching(table: TaskScores, metric: str, pattern: str) -> dict[str, float]:
    return {subset: value for subset, value in table.values(metric).items() if fnmatchcase(subset, pattern)}


def _cell(table: TaskScores, base: TaskScores | None, metric: str, pattern: str, hits: Items | None) -> Cell:
    values = _matching(table, metric, pattern)
    cell = Cell(100 * fmean(values.values()), fitted=table.trained_on)
    baseline = _matching(base, metric, pattern) if base else {}
    if base is None or not baseline:
        return cell
    if base.dataset_revision != table.dataset_revision:
        return replace(cell, other_text=True)
    common = sorted(values.keys() & baseline.keys())
    if len(common) < len(baseline):
        cell = replace(cell, covered=len(common), of=len(baseline))
    if not common:
        return cell
    difference = 100 * fmean(values[subset] - baseline[subset] for subset in common)
    cell = replace(cell, difference=difference)
    gaps = hits.gaps(table, base, equal_weights(common)) if hits else None
    if gaps is None:
        return cell
    cell, half = replace(cell, significant=sign_flip_test(gaps) < ALPHA), 100 * half_width(gaps)
    return replace(cell, low=difference - half, high=difference + half) if len(gaps) > 1 else cell


def _mark_best(rows: Sequence[dict[str, Cell]], column: str) -> None:
    """Mark the best of models with the same subsets, as means over fewer languages do not compare."""
    top = max(round(cells[column].score, 1) for cells in rows)
    for cells in rows:
        cells[column] = replace(cells[column], best=round(cells[column].score, 1) == top)


def _mark_ranks(
    rows: Mapping[str, Row], column: str, tables: Mapping[str, TaskScores], subsets: Collection[str], hits: Items
) -> None:
    """Mark the intervals of ranks among the models with outcomes; none without outcomes of the best."""
    tested = {name: table for name, table in tables.items() if hits.outcomes(table).keys() >= set(subsets)}
    shares = {name: hits.shares(table, equal_weights(subsets)) for name, table in tested.items()}
    best = {name for name in tables if rows[name].cells[column].best}
    if len(shares) < 2 or not best <= shares.keys() or len({len(row) for row in shares.values()}) > 1:
        return
    for name, ranks in zip(shares, rank_intervals(np.stack(list(shares.values()))), strict=True):
        rows[name].cells[column] = replace(rows[name].cells[column], ranks=ranks)


_FITTED = "†: the model was fitted or trained on text of this task."


def _name(metric: str) -> str:
    return "main score" if metric == MAIN else metric


def _legend(rows: Sequence[Row], metric: str) -> list[str]:
    cells = [(column, cell) for row in rows for column, cell in row.cells.items()]
    compared = {column for column, cell in cells if cell.difference is not None}
    tested = {column for column, cell in cells if cell.significant is not None}
    partial = next((cell for _, cell in cells if cell.covered is not None), None)
    lines = [
        f"Scores: {_name(metric)} in percent, the mean over a task's subsets. Bold: the best of the models that have "
        "the most subsets."
    ]
    if any(row.name.startswith("xalign/") for row in rows):
        lines.append(
            "A model's full name is xalign/ROW__BACKBONE. A name in brackets is that of the text it was fitted on or "
            "LUSIFER's language model, and comes last: xalign/ROW__BACKBONE__NAME."
        )
    if compared:
        lines.append("+/-: points above or below plain, the unaligned backbone, over the subsets that both have.")
    if partial:
        lines.append(
            f"{partial.covered}/{partial.of}: scored on {partial.covered} of the {partial.of} subsets that plain has "
            "(its alignment lacks languages); the score is the mean over these alone, the difference is like for like."
        )
    if any(cell.fitted for _, cell in cells):
        lines.append(_FITTED)
    if any(cell.other_text for _, cell in cells):
        lines.append(
            "≠: not compared, because plain was scored on another revision of the task's text; `xalign run` it again."
        )
    if tested:
        lines.append(
            f"~: the difference may be chance (p >= {ALPHA} in a paired sign-flip test over the sentences; each "
            "comparison by itself)."
        )
    if any(cell.tied for _, cell in cells):
        lines.append(
            "Underlined: statistically tied with the best (all pairs of the column's models tested over the "
            "sentences, Holm's correction)."
        )
    if tested and (untested := sorted(compared - tested)):
        lines.append(f"Not tested, because no scores by sentence were kept: {', '.join(untested)}.")
    return lines


def detail(
    results: Results, task: str, *, models: Collection[str] | None = None, metric: str = MAIN, published: bool = False
) -> Board:
    """One task by language: for pair tasks the means into and from each language, for others each subset.

    ``published`` adds the published numbers of the same task, metric and subset. The other arguments are those of
    :func:`leaderboard`.

    Raises:
        ResultsError: There are no such results.
    """
    choose(results.tasks, [task], "task")
    having = [model for model in results.models if (model, task) in results.tables]
    chosen = choose_models(having, models, f"{task} and model")
    heads = _empty_rows(results, chosen)
    cells: dict[str, dict[str, Cell]] = {"mean": {}}
    columns: list[str] = []
    legend = [f"{task}: {_name(metric)} in percent."]
    for head in heads:
        table = results.tables[head.name, task]
        for heading, scores in by_language(task, table.values(metric)).items():
            columns.append(f"{head.name.removeprefix('xalign/')} {heading}".strip())
            for language, value in scores.items():
                fitted = table.trained_on and language == "mean"
                cells.setdefault(language, {})[columns[-1]] = Cell(100 * value, fitted=fitted)
    if not columns:
        raise ResultsError(f"No readable result of {task} has {metric!r}.")
    if any(column.endswith("Into X") for column in columns):
        legend.append(
            "Into X: mean over the pairs whose candidates are in X; From X: whose queries are. mean: over all pairs."
        )
    if any(cell.fitted for row in cells.values() for cell in row.values()):
        legend.append(_FITTED)
    if published:
        tables = [results.tables[head.name, task] for head in heads]
        columns_of_papers = published_columns(task, tables, metric, set(cells))
        for column, values in columns_of_papers.items():
            columns.append(column)
            for language, value in values.items():
                cells[language][column] = Cell(value)
        legend.append(
            "[paper]: as printed there; its mean is over the paper's subsets."
            if columns_of_papers
            else "Nothing published has this task, metric and these subsets."
        )
    ordered = sorted(cells.items(), key=lambda item: (item[0] != "mean", item[0]))
    return Board("language", columns, [Row("", language, language, row) for language, row in ordered], legend)


def by_language(task: str, values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Heading -> language or subset -> score, with the mean over all subsets as ``mean``; empty without scores."""
    if not values:
        return {}
    pairs, mean = language_pairs(values) or {}, fmean(values.values())
    if task in DIRECTIONS:
        headings = {}
        for heading, pattern in DIRECTIONS[task].items():
            scores = {
                next(language for language in pairs[subset] if language != "eng_Latn"): value
                for subset, value in values.items()
                if fnmatchcase(subset, pattern)
            }
            if scores:
                headings[heading] = {"mean": fmean(scores.values()), **scores}
    elif any((b, a) in pairs.values() for a, b in pairs.values()):
        into, leaving = into_and_from(values)
        headings = {"Into X": {"mean": mean, **into}, "From X": {"mean": mean, **leaving}}
    else:
        return {"": {"mean": mean, **values}}
    return {heading: {code(name): v for name, v in scores.items()} for heading, scores in headings.items()}


def published_columns(
    task: str, tables: Sequence[TaskScores], metric: str, rows: set[str]
) -> dict[str, dict[str, float]]:
    """Column -> row -> percent, for published numbers of the same task and metric whose subset is among the rows."""
    equal = {metric}
    for table in tables:
        if values := table.values(metric):
            equal |= {other for other in table.metrics if table.values(other) == values}
    subsets = {languages: subset for table in tables for subset, languages in table.languages.items()}
    by_column: dict[str, dict[str, float]] = {}
    means, complete = set[str](), set[str]()
    for number in published_on(task):
        if not {number.metric, _SAME_METRIC.get(number.metric)} & equal:
            continue
        source, arrow, target = number.subset.partition("->")
        heading, row = number.direction.replace("->", "→").replace("other", "X"), number.subset
        if number.subset == "average":
            row = "mean"
        elif "*" in (source, target):
            heading, row = ("Into X", target) if source == "*" else ("From X", source)
            row = "mean" if row == "*" else row
            means.add(f"{number.column} {heading}")
        elif not number.direction:
            row = subsets.get((source, target) if arrow else (source,), "")
        column = f"{number.column} {heading}".strip()
        by_column.setdefault(column, {}).setdefault(row, number.value)
        complete |= {column} if number.whole else set()
    languages = rows - {"mean"}
    return {
        column: {row: value for row, value in values.items() if row in rows}
        for column, values in by_column.items()
        if (values.keys() & languages or column in complete)
        and (column not in means or values.keys() - {"mean"} == languages)  # like for like
    }
