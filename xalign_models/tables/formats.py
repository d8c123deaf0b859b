"""Boards as Markdown, LaTeX, CSV, TSV and JSON, all with the same numbers."""

import csv
import dataclasses
import io
import re
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any

from xalign_models.tables.board import HEAD, MARKS, Board, Cell, Row, wrap
from xalign_models.tables.escaping import escape

FIELDS = (
    *("score", "score_low", "score_high", "difference", "low", "high", "test", "same"),
    *("best_rank", "worst_rank", "best", "fitted", "covered", "of", "other_text"),
)
_INERT = re.compile(r"(?i)(?!.*(__|\]\(|\]\[|www\.))[\w .,+()→\-–·\[\]/]*")
"""Text that Markdown shows as it is: without links, addresses, and bold."""
_LIVE = {ord(character): f"\\{character}" for character in "<["}
NBSP = "\u00a0"
"""Non-breaking space between a score and its difference."""
ABREAST = 4
"""Columns that a page of LaTeX has room for."""
_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{char: f"{{{char}}}" for char in "[*"},  # after the end of a line they would be its options
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "→": r"$\rightarrow$",
    "≠": r"$\neq$",
    "°": r"\textdegree{}",
    "–": "--",
    "†": r"\textdagger{}",
}


def to_json(board: Board) -> dict[str, Any]:
    """Plain data; scores in percent, differences and intervals in points."""
    return {
        "columns": list(board.columns),
        "rows": [
            {
                **{name: getattr(row, name) for name in ("group", "name", "prompt", "apart")},
                "cells": {key: _plain(cell) for key, cell in row.cells.items()},
            }
            for row in board.rows
        ],
        "common": {column: list(subsets) for column, subsets in board.common.items()},
        "legend": list(board.legend),
    }


def _plain(cell: Cell) -> dict[str, Any]:
    fields = dataclasses.asdict(cell)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in fields.items()}


def to_csv(board: Board) -> str:
    """One line per cell, for programs: row, column, and each number in its own field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*board.heads, "column", *FIELDS])
    for row in board.rows:
        for column, cell in row.cells.items():
            plain = _plain(cell)
            plain["best_rank"], plain["worst_rank"] = plain["ranks"] or (None, None)
            texts = (escape(text, "csv") for text in (*board.texts(row, row.name), column))
            writer.writerow([*texts, *(plain[field] for field in FIELDS)])
    return text.getvalue()


def to_tsv(board: Board) -> str:
    """One line per row, for pipes: its full name, then each cell with its marks as the terminal shows them."""
    lines = [[*board.heads, *(escape(column, "csv") for column in board.columns)]]
    for row in board.rows:
        cells = (" ".join(row.lines(column)) for column in board.columns)
        lines.append([*(escape(text, "csv") for text in board.texts(row, row.name)), *cells])
    return "".join("\t".join(line) + "\n" for line in lines)


def to_markdown(board: Board, *, narrow: bool = False) -> str:
    """A GitHub table, each group under a line with its title, and the legend below it.

    A narrow one has no legend, for a column of 830 pixels: at most five columns fit.
    """

    def text(row: Row, column: str) -> str:
        score, *extra = row.lines(column)
        cell = row.cells.get(column)
        marked = f"**{score}**" if cell and cell.best else f"<ins>{score}</ins>" if cell and cell.tied else score
        return marked + (f"{NBSP if narrow else ' '}({', '.join(extra)})" if extra else "")

    heads = [_markdown(" ".join(wrap(column, HEAD))) for column in board.columns]  # browsers break lines at spaces
    texts = board.heads
    lines = [[*texts, *heads], [*["---"] * len(texts), *["---:"] * len(heads)]]
    for group, rows in groupby(board.rows, attrgetter("group")):
        if group:
            lines.append([f"**{_markdown(group)}**", *[""] * (len(texts) - 1 + len(heads))])
        lines += [
            [*map(_markdown, board.texts(row, row.label)), *(text(row, column) for column in board.columns)]
            for row in rows
        ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return table if narrow else table + "\n" + "".join(f"- {escape(line).translate(_LIVE)}\n" for line in board.legend)


def _markdown(text: str) -> str:
    return text if _INERT.fullmatch(text) else escape(text, "markdown")


def to_latex(board: Board) -> str:
    r"""A ``booktabs`` table: differences with 95% intervals below the scores, daggers, the best bold, ties underlined.

    ``\usepackage{booktabs}`` and a Unicode engine, or ``\usepackage[utf8]{inputenc}``, are what it needs.
    """
    columns, texts = len(board.columns), len(board.heads)
    heads = [_latex_head(column, rotated=columns > ABREAST) for column in board.columns]
    lines = [
        rf"\begin{{tabular}}{{{'l' * texts}{'r' * columns}}}  % needs booktabs and graphicx",
        r"\toprule",
        rf"{' & '.join([*map(latex, board.heads), *heads])} \\",
    ]
    for group, rows in groupby(board.rows, attrgetter("group")):
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{texts + columns}}}{{l}}{{\textbf{{{latex(group)}}}}} \\")
        for row in rows:
            cells = [row.cells.get(column) for column in board.columns]
            lines.append(" & ".join([*map(latex, board.texts(row, row.label)), *map(_latex_score, cells)]) + r" \\")
            below = [[*map(small, cells)] for small in (_latex_difference, _latex_same)]
            lines += [" & ".join([*[""] * texts, *line]) + r" \\" for line in below if any(line)]
    notes = [rf"% {escape(line)}" for line in board.legend]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes]) + "\n"


def latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(character, character) for character in escape(text))


def _latex_head(column: str, *, rotated: bool) -> str:
    if rotated:
        return rf"\rotatebox{{60}}{{{latex(column)}}}"
    stacked = r"\\".join(map(latex, wrap(column, 16)))
    return rf"\shortstack[r]{{{stacked}}}" if r"\\" in stacked else stacked


def _latex_score(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    score = rf"\textbf{{{cell.score:.1f}}}" if cell.best else f"{cell.score:.1f}"
    score = rf"\underline{{{score}}}" if cell.tied else score
    return score + r"\textsuperscript{\textdagger}" * cell.fitted


def _latex_difference(cell: Cell | None) -> str:
    if cell is None or cell.difference is None:
        return ""
    interval = "" if cell.low is None or cell.high is None else f" [{cell.low:+z.1f}, {cell.high:+z.1f}]"
    coverage = "" if cell.covered is None else f" {cell.covered}/{cell.of}"
    mark = latex(MARKS[cell.test]) if cell.test else ""
    return rf"{{\scriptsize ${cell.difference:+z.1f}${mark}{interval}{coverage}}}"


def _latex_same(cell: Cell | None) -> str:
    return "" if cell is None or cell.same is None else rf"{{\scriptsize same ${cell.same:+z.1f}$}}"


FORMATS: dict[str, Callable[[Board], str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv, "tsv": to_tsv}
"""Text formats by name; JSON is :func:`to_json`."""
