"""A table of scores, and how a terminal shows it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xalign_models.tables.escaping import escape

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

_LABEL, _NARROW, HEAD = 40, 18, 10  # characters that row labels, the same where space is short, and headers may have


@dataclass(frozen=True)
class Cell:
    """One score.

    Attributes:
        score: Score in percent.
        difference: Difference to the unaligned backbone over common subsets, in points; None without a backbone.
        significant: Whether the difference is significant; None if untested.
        low: Lower end of the difference's 95% interval, in points; None if untested.
        high: Upper end of the interval.
        ranks: Best and worst plausible rank in the column; None if untested.
        covered: Number of common subsets, if the model lacks some of the backbone's.
        of: Number of the backbone's subsets in that case.
        fitted: Whether the model was fitted on the task's text.
        other_text: Whether the backbone was scored on another revision of the text.
        best: Whether the score is the best of its column.
    """

    score: float
    difference: float | None = None
    significant: bool | None = None
    low: float | None = None
    high: float | None = None
    ranks: tuple[int, int] | None = None
    covered: int | None = None
    of: int | None = None
    fitted: bool = False
    other_text: bool = False
    best: bool = False

    def lines(self) -> list[str]:
        """Score, difference and coverage as text, as far as available."""
        lines = [f"{self.score:.1f}" + "†" * self.fitted]
        if self.difference is not None:
            lines.append(f"{round(self.difference, 1) + 0.0:+.1f}" + "~" * (self.significant is False))
        if self.other_text:
            lines.append("≠")
        if self.covered is not None and self.of:
            lines.append(f"{self.covered}/{self.of}" if self.of < 1000 else f"{self.covered / self.of:.0%}")
        return lines

    @property
    def tied(self) -> bool:
        """Whether the difference to the best of the column may be due to chance."""
        return not self.best and self.ranks is not None and self.ranks[0] == 1


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        group: Title above the first of the rows that share it; may be empty.
        label: Label in tables.
        name: Full name in JSON.
        cells: Cells by column.
    """

    group: str
    label: str
    name: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Board:
    """A table of cells; rich prints it, in several pieces where the columns do not fit side by side.

    Attributes:
        corner: Header of the row labels.
        columns: Headers of the columns.
        rows: Rows; those of a group are adjacent.
        legend: Explanations of the marks, one sentence each.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    legend: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """One table, or several below each other, then the legend."""
        from rich.text import Text

        widths = {
            column: 2
            + _width([*wrap(column, HEAD), *(line for row in self.rows for line in _lines(row.cells, column))])
            for column in self.columns
        }
        room = options.max_width - sum(widths.values())
        limit = _LABEL if room >= self._label_width(_LABEL) else _NARROW
        piece: list[str] = []
        used = self._label_width(limit)
        for column, width in widths.items():
            if piece and used + width > options.max_width:
                yield from (self._table(piece, limit), "")
                piece, used = [], self._label_width(limit)
            piece.append(column)
            used += width
        yield from (self._table(piece, limit), "")
        yield from (Text(escape(line), style="dim") for line in self.legend)

    def _label_width(self, limit: int) -> int:
        rows = (line for row in self.rows for line in (*wrap(row.group, limit), *_label(row, limit)))
        return _width([self.corner, *rows])

    def _table(self, columns: Sequence[str], limit: int) -> RenderableType:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        heads = [[self.corner], *(wrap(column, HEAD) for column in columns)]
        height = max(map(len, heads))
        first, *further = (Text("\n" * (height - len(lines)) + "\n".join(lines)) for lines in heads)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(first, min_width=self._label_width(limit), no_wrap=True)
        for head in further:
            table.add_column(head, justify="right", no_wrap=True)
        previous = ""
        for row in self.rows:
            if row.group != previous:
                if previous:
                    table.add_row()
                table.add_row(Text("\n".join(wrap(row.group, limit)), style="bold"))
                previous = row.group
            table.add_row(Text("\n".join(_label(row, limit))), *(_styled(row.cells, column) for column in columns))
        return table


def _lines(cells: Mapping[str, Cell], column: str) -> list[str]:
    return cells[column].lines() if column in cells else ["–"]


def _styled(cells: Mapping[str, Cell], column: str) -> Text:
    from rich.text import Text

    score, *extra = _lines(cells, column)
    cell = cells.get(column)
    style = "bold green" if cell and cell.best else "underline" if cell and cell.tied else ""
    return Text.assemble((score, style), ("".join(f"\n{line}" for line in extra), "dim"))


def _label(row: Row, limit: int) -> list[str]:
    return wrap(row.label, limit, "  " * bool(row.group))


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines broken at spaces and, if it is too long, after - / __ and at the humps of a task's name."""
    text = escape(text)
    if len(text) > width:
        text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z]{2})(?=[A-Z][a-z])", " ", text)
        text = re.sub(r"(-|/|__)(?=\w)", r"\1 ", text)
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    return [re.sub(r"(-|/|__) ", r"\1", line) for line in lines]


def _width(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)
