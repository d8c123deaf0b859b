"""A table of scores: for the terminal, as Markdown, as plain data and as CSV."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_LABEL, _HEAD = 20, 13  # widest row label and header; longer ones wrap


@dataclass(frozen=True)
class Cell:
    """One score.

    Attributes:
        score: In percent.
        difference: To the unaligned backbone over the subsets that both have, in points; None where there is none.
        significant: Whether the difference is; None if it was not tested.
        covered: (subsets that both have, subsets of the backbone) when the model lacks some.
        fitted: Whether the model was fitted on the task's text.
        other_text: Whether the backbone was scored on another revision of the text.
        best: Whether it is the best of its column.
    """

    score: float
    difference: float | None = None
    significant: bool | None = None
    covered: tuple[int, int] | None = None
    fitted: bool = False
    other_text: bool = False
    best: bool = False

    def lines(self) -> list[str]:
        """Score, difference and coverage as text, those that there are."""
        found = [f"{self.score:.1f}" + "†" * self.fitted]
        if self.difference is not None:
            found.append(f"{round(self.difference, 1) + 0.0:+.1f}" + "~" * (self.significant is False))
        if self.other_text:
            found.append("≠")
        if self.covered:
            n, total = self.covered
            found.append(f"{n}/{total}" if total < 1000 else f"{n / total:.0%}")
        return found


@dataclass(frozen=True)
class Board:
    """A table of cells; rich prints it, in several pieces where the columns do not fit side by side.

    Attributes:
        corner: What the rows are.
        columns: Their headers.
        rows: (group, label, full name, cells by column); a group's rows follow each other.
        legend: What the marks mean, a sentence each.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, str, str, Mapping[str, Cell]]]
    legend: Sequence[str] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """One table, or several below each other, then the legend."""
        heads = {column: _wrap(column, 13) for column in self.columns}
        labels = [_wrap(self.corner, 20), *(_wrap(group, 20) for group, *_ in self.rows)]
        labels += [_wrap(label, 18, "  ") for _, label, *_ in self.rows]
        first = max(len(line) for label in labels for line in label.splitlines())
        widths = {
            column: max(
                len(line) for text in [heads[column].splitlines(), *(_lines(row[3], column) for row in self.rows)] for line in text
            )
            for column in self.columns
        }
        piece: list[str] = []
        room = options.max_width - first
        for column in self.columns:
            if piece and sum(widths[one] + 2 for one in [*piece, column]) > room:
                yield self._table(piece, heads, first)
                piece = []
            piece.append(column)
        yield self._table(piece, heads, first)
        yield from self.legend

    def _table(self, columns: Sequence[str], heads: Mapping[str, str], first: int) -> RenderableType:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
        table.add_column(Text(_wrap(self.corner, 20)), vertical="bottom", width=first, no_wrap=True)
        for column in columns:
            table.add_column(Text(heads[column]), justify="right", vertical="top", no_wrap=True)
        shown = ""
        for group, label, _, cells in self.rows:
            if group != shown:
                if shown:
                    table.add_section()
                table.add_row(Text(_wrap(group, 20), style="bold"))
                shown = group
            texts = []
            for column in columns:
                score, *rest = _lines(cells, column)
                best = column in cells and cells[column].best
                texts.append(Text.assemble((score, "bold green" if best else ""), ("\n".join(["", *rest]), "dim")))
            table.add_row(Text(_wrap(label, 18, "  " if group else "")), *texts)
        return table

    def to_markdown(self) -> str:
        """A GitHub table with the legend below it."""

        def text(cell: Cell | None) -> str:
            if cell is None:
                return ""
            score, *rest = cell.lines()
            return (f"**{score}**" if cell.best else score) + (f" ({', '.join(rest)})" if rest else "")

        lines = [[self.corner, *self.columns], ["---", *["---:"] * len(self.columns)]]
        lines += [[name, *(text(cells.get(column)) for column in self.columns)] for _, _, name, cells in self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return table + "\n\n" + "\n".join(f"- {line}" for line in self.legend) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers in percent and points, unrounded but for float noise."""
        return {
            "rows": [
                {"group": group, "name": name, "scores": {column: _plain(cell) for column, cell in cells.items()}}
                for group, _, name, cells in self.rows
            ],
            "columns": list(self.columns),
            "legend": list(self.legend),
        }

    def to_csv(self) -> str:
        """Long form: a line per cell."""
        target = io.StringIO()
        names = list(_plain(Cell(0)))
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(["group", "name", "column", *names])
        for group, _, name, cells in self.rows:
            writer.writerows([group, name, column, *_plain(cell).values()] for column, cell in cells.items())
        return target.getvalue()


def _plain(cell: Cell) -> dict[str, Any]:
    return {
        "score": round(cell.score, 4),
        "difference": None if cell.difference is None else round(cell.difference, 4),
        "significant": cell.significant,
        "covered": cell.covered and cell.covered[0],
        "of": cell.covered and cell.covered[1],
        "fitted": cell.fitted,
        "best": cell.best,
    }


def _lines(cells: Mapping[str, Cell], column: str) -> list[str]:
    return cells[column].lines() if column in cells else ["–"]


def _wrap(text: str, width: int, indent: str = "") -> str:
    """Broken at spaces, hyphens and humps: ``LanguageIdentity`` is two words."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text) if "/" not in text else text
    return textwrap.fill(words, width, initial_indent=indent, subsequent_indent=indent)
