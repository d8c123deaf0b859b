"""Tables of pages, made from committed files as ``tables.toml`` describes them.

``python -m docs.tools.claims --write`` puts them into the pages. A table of that file has these keys, all optional but
``about``, ``columns`` and one of ``for`` and ``rows``. A cell, a label and a value of ``let`` are expressions in the
language of :func:`evaluate`. They see what ``[names]`` defines and the variables of their row.

    about        What the table shows.
    for          A row for each combination of these variables' values; several sets of variables in a list. The values
                 are a list, or an expression that gives one.
    rows         A row for each label, with its variables; or the name of another table, for the same rows.
    label        The row's first cell. Without it, the values of ``for`` or the label of ``rows``, which is ``row``.
    corner       The head of the first column.
    let          Variables that the cells of a row share, each of which sees those before it.
    columns      Heads, and the cells below them; several groups in a list. ``for`` repeats a group along variables that
                 its heads name in braces, and ``format`` is the form of its numbers, of all numbers of a list together.
    differences  The form in which rows after the first show their difference from it.
    like         Another table, whose keys hold here too, and whose columns come first.
"""

import tomllib
from collections.abc import Iterator, Mapping
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from docs.tools.comparisons import SOURCES  # all sources, its own among them

_ARITHMETIC = {f.__name__: f for f in (abs, all, any, fmean, len, log, map, max, min, range, round, str, sum, zip)}
_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NAMES: Mapping[str, Any] = _FILE["names"]
TABLES: dict[str, dict[str, Any]] = _FILE["tables"]
"""Descriptions of tables, by the name in their marker."""


def evaluate(expression: str, variables: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression, which may also use these variables; it has no other builtins."""
    names = {"__builtins__": {}, **SOURCES, **_ARITHMETIC, **(variables or {})}
    return eval(" ".join(expression.split()), names)  # from the repository's own pages and tables


def table(name: str) -> str:
    """A table in Markdown: the first column to the left, the others to the right.

    Raises:
        KeyError: No table has this name.
    """
    description = TABLES[name]
    if "like" in description:
        model = TABLES[description["like"]]
        columns = [*_listed(model["columns"]), *_listed(description.get("columns", []))]
        description = {**model, **description, "columns": columns}
    columns = list(_columns(description["columns"]))
    lines = [[description.get("corner", ""), *(head for head, *_ in columns)], ["---", *["---:"] * len(columns)]]
    first: list[Any] = []
    for variables in _rows(description):
        for key, expression in description.get("let", {}).items():
            variables[key] = evaluate(expression, variables)
        cells = [evaluate(expression, {**variables, **more}) for _, expression, _, more in columns]
        forms = [form for *_, form, _ in columns]
        if "differences" in description and first:
            cells = [cell - whole for cell, whole in zip(cells, first, strict=True)]
            forms = [description["differences"]] * len(cells)
        first = first or cells
        label = str(evaluate(description.get("label", "row"), variables))
        lines.append([label, *map(_text, cells, forms)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _combinations(axes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    values = [evaluate(value, NAMES) if isinstance(value, str) else value for value in axes.values()]
    for combination in product(*values):
        yield dict(zip(axes, combination, strict=True))


def _rows(description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for axes in _listed(description.get("for", [])):
        for variables in _combinations(axes):
            yield {**NAMES, "row": ": ".join(map(str, variables.values())), **variables}
    rows = description.get("rows", {})
    for label, variables in (TABLES[rows]["rows"] if isinstance(rows, str) else rows).items():
        yield {**NAMES, "row": label, **variables}


def _columns(groups: Any) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for group in _listed(groups):
        cells = {head: cell for head, cell in group.items() if head not in ("for", "format")}
        for variables in _combinations(group.get("for", {})):
            for head, cell in cells.items():
                yield head.format(**variables), cell, group.get("format", "{:.1f}"), variables


def _text(content: Any, form: str) -> str:
    if isinstance(content, list):
        return form.format(*content)
    if isinstance(content, float):
        return form.format(content + 0.0)  # no minus before a zero
    return "" if content is None else str(content)
