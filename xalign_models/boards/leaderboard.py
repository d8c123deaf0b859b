"""Tables of results: models x tasks with differences to the unaligned backbone, and one task by language."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, repeat
from statistics import fmean
from typing import Any

import numpy as np

from xalign_models.boards.columns import Column, Tested, judge, rank
from xalign_models.boards.studies import prompt_of, studies
from xalign_models.errors import ModelError, ResultsError
from xalign_models.linalg.arrays import Float64
from xalign_models.parallel import map_forked
from xalign_models.published import published_on
from xalign_models.results.intervals import FEWEST
from xalign_models.results.items import Items
from xalign_models.results.languages import code, into_and_from, language_pairs, shared
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import Results, TaskScores
from xalign_models.results.significance import ALPHA
from xalign_models.tables.board import MARKS, Board, Cell, Evidence, Row

DIRECTIONS: dict[str, dict[str, str]] = {"Tatoeba36": {"eng→X": "*eng_Latn-*", "X→eng": "*-eng_Latn"}}
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
    languages: Collection[str] | None = None,
    study: bool | None = None,
) -> Board:
    """Models x tasks: the mean over the subsets that a column's rows share, and the difference to the plain backbone.

    A row that lacks one of these subsets, or has another text, stands apart, in a block with rows of the same subsets.

    Args:
        results: From :func:`xalign_models.results.reading.read_results`.
        models: Names, with or without ``xalign/``, directories or hub ids; None for all.
        tasks: Names; None for all.
        metric: ``main_score`` for each task's own.
        significance: Test differences where ranks by item were kept.
        languages: Canonical codes; a subset counts that has one of them, and no other but the one of all pairs. None
            for the subsets that give the most scores, of :func:`xalign_models.results.languages.shared`.
        study: Whether to show studies, or models (see :mod:`xalign_models.boards.studies`); None for both.

    Raises:
        ResultsError: There is no readable result, or a name has none.
    """
    specs = {model: table.spec for (model, _), table in results.tables.items()}
    varied = studies(specs)
    kind = {name for name in specs if study is None or (name in varied) == study}
    chosen = [name for name in choose_models(results.models, models) if name in kind]
    rows = {row.name: replace(row, prompt=prompt_of(specs[row.name])) for row in _empty_rows(results, chosen)}

    def columns_of(task: str) -> list[Column]:
        patterns = {f"{task} {name}".strip(): text for name, text in DIRECTIONS.get(task, {"": "*"}).items()}
        made = (Column.of(results, head, task, text, metric, list(rows), languages) for head, text in patterns.items())
        return [column for column in made if column]

    by_task = [columns_of(task) for task in choose(results.tasks, tasks, "task")]
    columns = [*chain.from_iterable(by_task)]
    if not columns:
        metrics = sorted({name for table in results.tables.values() for name in table.columns})
        hint = "only studies have it, see --studies" if study is False and len(kind) < len(specs) else ""
        if study and not kind:
            raise ResultsError("There are no studies among the results; leave out --studies.")
        if languages is not None and metric in metrics and not hint:
            raise ResultsError(f"No subset has only languages of {', '.join(languages)}; add languages to --languages.")
        raise ResultsError(
            f"No readable result has {metric!r}; {hint or 'there are ' + (', '.join(metrics) or 'none')}."
        )

    def filled(of_task: Sequence[Column]) -> list[tuple[dict[str, Tested], Sequence[Tested], Float64]]:
        items = Items(metric) if significance else None
        for column in of_task:
            column.fill(results, items)
        return [(column.cells, column.ranked, column.p_values) for column in of_task]

    by_task.sort(key=lambda of_task: -sum(len(values) for column in of_task for values in column.values.values()))
    parts = chain.from_iterable(map_forked(filled, by_task, sum(len(column.tables) for column in columns)))
    for column, part in zip(chain.from_iterable(by_task), parts, strict=True):
        column.cells, column.ranked, column.p_values = part
    judge([cell for column in columns for cell in column.cells.values()])
    rank(columns)
    for column in columns:
        for name in column.common:
            rows[name].cells[column.name] = column.cells[name].cell
    shown = [*(row for row in rows.values() if row.cells), *_apart(rows, columns)]
    common = {column.name: sorted(column.shared) for column in columns}
    return Board("model", [column.name for column in columns], shown, _legend(shown, metric, columns), common)


def _apart(rows: Mapping[str, Row], columns: Sequence[Column]) -> list[Row]:
    """Rows of the cells over other subsets, in blocks of rows that have the same subsets."""
    blocks: dict[frozenset[Any], list[Row]] = {}
    for name, row in rows.items():
        own = [column for column in columns if name in column.cells and name not in column.common]
        key = frozenset((c.name, c.cells[name].subsets, c.tables[name].text) for c in own)
        label = f"{row.label} · {row.group}" if row.name.startswith("xalign/") else row.label
        cells = {column.name: column.cells[name].cell for column in own}
        if own:
            blocks.setdefault(key, []).append(replace(row, label=label, cells=cells, apart=True))
    titles = ["other languages" + f" ({number})" * (len(blocks) > 1) for number in range(1, len(blocks) + 1)]
    return [replace(row, group=title) for title, block in zip(titles, blocks.values(), strict=True) for row in block]


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
    from xalign_models.models.names import locate

    try:
        name = locate(model).name
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


_FITTED = "†: the model was fitted or trained on text of this task."


def _name(metric: str) -> str:
    return "main score" if metric == MAIN else metric


def _legend(rows: Sequence[Row], metric: str, columns: Sequence[Column]) -> list[str]:
    cells = [cell for row in rows for cell in row.cells.values()]
    every = {column.name: {s for values in column.values.values() for s in values} for column in columns}
    fewer = [
        f"{column.name} {len(column.shared)} of {len(every[column.name])}"
        for column in columns
        if len(column.shared) < len(every[column.name])
    ]
    tests = {cell.test for cell in cells}
    lines = [
        f"Scores: {_name(metric)} in percent, the mean over the subsets (languages or pairs) that a column's rows share"
        + (f": {', '.join(fewer)}; all of the others" if fewer else "")
        + ". Bold: the best of these rows."
    ]
    blocks = {row.group: row for row in rows if row.apart}
    for title, row in blocks.items():
        own = (f"{column} over {', '.join(cell.languages)}" for column, cell in row.cells.items())
        lines.append(
            f"{title.capitalize()}: not comparable with the rows above, but with each other. {'; '.join(own)}."
        )
    if blocks:
        lines.append("k/n: the mean is over k of the n subsets that the rows above share.")
    if any(row.name.startswith("xalign/") for row in rows):
        lines.append(
            "A model's full name is xalign/ROW__BACKBONE. A name in brackets is that of the text it was fitted on or "
            "LUSIFER's language model, and comes last: xalign/ROW__BACKBONE__NAME."
        )
    if any(row.prompt for row in rows):
        lines.append("Prompt: as set for the model; –: none was set, so its checkpoint's own counts, if it has one.")
    if any(cell.difference is not None for cell in cells):
        lines.append("+/-: points above or below plain, the unaligned backbone, over the same subsets.")
    if any(cell.same is not None for cell in cells):
        lines.append(
            "same: points above or below plain within a language (answers in the question's language, or subsets of a "
            "single language). A gain across languages may cost some."
        )
    if any(cell.fitted for cell in cells):
        lines.append(_FITTED)
    if any(cell.other_text for cell in cells):
        lines.append(
            "≠: not compared, because plain was scored on another revision or split of the text; `xalign run` it again."
        )
    if tests & {Evidence.HOLDS, Evidence.FIXED, Evidence.CHANCE}:
        why = {
            Evidence.CHANCE: f" (p >= {ALPHA} with Holm's correction for all differences of the board).",
            Evidence.FIXED: f": beyond chance for other sentences in these languages, which are fewer than {FEWEST}.",
            Evidence.NONE: ", because no scores by sentence were kept.",
        }
        lines += [f"{MARKS[test]}: {test}{text}" for test, text in why.items() if test in tests]
        lines.append(
            "No mark: beyond chance for other sentences and other languages. Intervals are 95% intervals of a single "
            "difference."
        )
    if any(cell.tied for cell in cells):
        lines.append(
            "Underlined: statistically tied with the best (all pairs of each column's rows are tested, with Holm's "
            "correction for all pairs of the board)."
        )
    return lines


def detail(
    results: Results, task: str, *, models: Collection[str] | None = None, metric: str = MAIN, published: bool = False,
    languages: Collection[str] | None = None,
) -> Board:  # fmt: skip
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
    subsets = results.subsets(task, chosen, languages)
    by_model = {head.name: results.tables[head.name, task].values(metric, subsets) for head in heads}
    texts = {name: frozenset(zip(repeat(results.tables[name, task].text), by_model[name])) for name in by_model}
    common = shared([*filter(None, texts.values())])
    for head in heads:
        table, values = results.tables[head.name, task], by_model[head.name]
        alike = {s: value for s, value in values.items() if (table.text, s) in common}
        like = by_language(task, alike) if common <= texts[head.name] else {}
        mark = "" if table.text in dict(common) else "≠"
        for heading, scores in by_language(task, values).items():
            columns.append(" ".join(filter(None, (head.name.removeprefix("xalign/"), heading, mark))))
            for language, value in {**scores, "mean": like.get(heading, {}).get("mean")}.items():
                if value is None:
                    continue
                fitted = table.trained_on and language == "mean"
                cells.setdefault(language, {})[columns[-1]] = Cell(100 * value, fitted=fitted)
    if not columns:
        where = f" in {', '.join(languages)}" if languages else ""
        raise ResultsError(f"No readable result of {task} has {metric!r}{where}.")
    if any(subsets != common for subsets in texts.values()):
        legend.append(f"mean: over the {len(common)} subsets that most models share; –: the model lacks one of them.")
    other = "≠: not comparable with the others, which were scored on another revision or split of the text."
    legend += [other] * any(column.endswith("≠") for column in columns)
    if any("Into X" in column for column in columns):
        legend.append("Into X: mean over the pairs whose candidates are in X; From X: whose queries are.")
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
    if pairs and task in DIRECTIONS:
        headings = {}
        for heading, pattern in DIRECTIONS[task].items():
            scores = {
                next((language for language in pairs[subset] if language != "eng_Latn"), "eng_Latn"): value
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
    numbers = [(number, {number.metric, _SAME_METRIC.get(number.metric)}) for number in published_on(task)]
    equal, printed = {metric}, {str(name) for _, names in numbers for name in names}
    for columns in (table.columns for table in tables if metric in table.columns):
        others = printed & columns.keys() - equal
        equal |= {name for name in others if np.array_equal(columns[name], columns[metric], equal_nan=True)}
    subsets = {languages: subset for table in tables for subset, languages in table.frame.languages.items()}
    by_column: dict[str, dict[str, float]] = {}
    means, complete = set[str](), set[str]()
    for number, names in numbers:
        if not names & equal:
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
