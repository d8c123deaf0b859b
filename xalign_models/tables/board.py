"""A table of scores, and how a terminal shows it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from rich.text import Text

from xalign_models.tables.escaping import escape

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_LABEL, _NARROW, HEAD = 40, 18, 10  # characters that row labels, the same where space is short, and headers may have


class Evidence(StrEnum):
    """The test of a difference."""

    HOLDS = "holds"
    FIXED = "untested over languages"
    CHANCE = "may be chance"
    NONE = "not tested"


MARKS = {Evidence.HOLDS: "", Evidence.FIXED: "°", Evidence.CHANCE: "~", Evidence.NONE: "?"}
"""The mark behind a difference, by its test."""


@dataclass(frozen=True)
class Cell:
    """One score.

    Attributes:
        score: Score in percent.
        difference: Difference to the unaligned backbone over the same subsets, in points; None without a backbone.
        test: Whether the difference is beyond chance, for other languages, too; None without one.
        low: Lower end of the difference's 95% interval, in points; None if untested.
        high: Upper end of the interval.
        score_low: Lower end of the score's 95% interval over languages and sentences; None if untested over languages.
        score_high: Upper end of that interval.
        same: Difference to the unaligned backbone in retrieval or similarity within a language, in points; None if the
            task does not measure it.
        ranks: Best and worst plausible rank in the column; None if untested.
        covered: Number of the score's subsets, if it lacks some of those that the other rows have.
        of: Number of the other rows' subsets in that case.
        languages: Codes of the score's languages in that case.
        fitted: Whether the model was fitted on the task's text.
        other_text: Whether the backbone, or the other rows, were scored on another revision or split of the text.
        best: Whether the score is the best of its column.
    """

    score: float
    difference: float | None = None
    test: Evidence | None = None
    low: float | None = None
    high: float | None = None
    score_low: float | None = None
    score_high: float | None = None
    same: float | None = None
    ranks: tuple[int, int] | None = None
    covered: int | None = None
    of: int | None = None
    languages: tuple[str, ...] = ()
    fitted: bool = False
    other_text: bool = False
    best: bool = False

    def lines(self) -> list[str]:
        """Score, difference, same-language difference and coverage as text, as far as available."""
        lines = [f"{self.score:.1f}" + "†" * self.fitted]
        if self.difference is not None:
            lines.append(f"{self.difference:+z.1f}" + (MARKS[self.test] if self.test else ""))
        if self.same is not None:
            lines.append(f"same {self.same:+z.1f}")
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
        prompt: Prompt of the model in a few words; empty if none was set.
        apart: Whether the scores are over other subsets than those of the other blocks.
    """

    group: str
    label: str
    name: str
    cells: dict[str, Cell]
    prompt: str = ""
    apart: bool = False

    def lines(self, column: str) -> list[str]:
        """The lines of a column's cell; a dash without one."""
        return self.cells[column].lines() if column in self.cells else ["–"]


@dataclass(frozen=True)
class Board:
    """A table of cells; rich prints it, in several pieces where the columns do not fit side by side.

    Attributes:
        corner: Header of the row labels.
        columns: Headers of the columns.
        rows: Rows; those of a group are adjacent.
        legend: Explanations of the marks, one sentence each.
        common: Subsets that the scores of a column's rows share, by column; rows with other subsets stand apart.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    legend: Sequence[str]
    common: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def heads(self) -> list[str]:
        """Headers of the text columns: that of the labels, and ``prompt`` if a row has one."""
        return [self.corner, "prompt"] if any(row.prompt for row in self.rows) else [self.corner]

    def texts(self, row: Row, label: str) -> list[str]:
        """A row's text columns, with its label or name in the first."""
        return [label, row.prompt or "–"][: len(self.heads)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """One table, or several below each other, then the legend."""
        widths = {
            column: 2 + _width([*wrap(column, HEAD), *(line for row in self.rows for line in row.lines(column))])
            for column in self.columns
        }
        room = options.max_width - sum(widths.values())
        limit = _LABEL if room >= sum(self._text_widths(_LABEL)) else _NARROW
        start = sum(self._text_widths(limit))
        for piece in pieces([*widths.values()], start, options.max_width):
            yield from (self._table([self.columns[place] for place in piece], limit), "")
        yield from (Text(escape(line), style="dim") for line in self.legend)

    def _text_widths(self, limit: int) -> list[int]:
        groups = [line for row in self.rows for line in wrap(row.group, limit)]
        widths = [
            _width([head, *(line for row in self.rows for line in self._wrapped(row, limit)[place])])
            for place, head in enumerate(self.heads)
        ]
        return [max(widths[0], _width(groups)), *(1 + width for width in widths[1:])]

    def _wrapped(self, row: Row, limit: int) -> list[list[str]]:
        label = wrap(row.label, limit, "  " * bool(row.group))
        return [label, *(wrap(text, _NARROW) for text in self.texts(row, row.label)[1:])]

    def _table(self, columns: Sequence[str], limit: int) -> RenderableType:
        from rich import box
        from rich.table import Table

        texts = self.heads
        heads = [*([text] for text in texts), *(wrap(column, HEAD) for column in columns)]
        height = max(map(len, heads))
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for place, lines in enumerate(heads):
            head = Text("\n" * (height - len(lines)) + "\n".join(lines))
            wide = self._text_widths(limit)[0] if place == 0 else None
            table.add_column(head, justify="right" if place >= len(texts) else "left", min_width=wide, no_wrap=True)
        previous = ""
        for row in self.rows:
            if row.group != previous:
                if previous:
                    table.add_row()
                table.add_row(Text("\n".join(wrap(row.group, limit)), style="bold"))
                previous = row.group
            shown = (Text("\n".join(lines)) for lines in self._wrapped(row, limit))
            table.add_row(*shown, *(_styled(row, column) for column in columns))
        return table


def pieces(widths: Sequence[int], start: int, room: int) -> Iterator[list[int]]:
    """Places of the columns that fit side by side, at least one each, behind a first column of ``start`` characters."""
    piece: list[int] = []
    used = start
    for place, width in enumerate(widths):
        if piece and used + width > room:
            yield piece
            piece, used = [], start
        piece.append(place)
        used += width
    yield piece


def _styled(row: Row, column: str) -> Text:
    score, *extra = row.lines(column)
    cell = row.cells.get(column)
    style = "bold green" if cell and cell.best else "underline" if cell and cell.tied else ""
    return Text.assemble((score, style), ("".join(f"\n{line}" for line in extra), "dim"))


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines broken at spaces and, if it is too long, after - / __ and at the humps of a task's name."""
    text = escape(text)
    if len(text) > width:
        text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z]{2})(?=[A-Z][a-z])", " ", text)
        text = re.sub(r"(-|/|__)(?=\w)", r"\1\v", text)  # a space for textwrap, which escaped text does not have
    wrapper = textwrap.TextWrapper(width, indent, indent, break_long_words=False, replace_whitespace=False)
    return [line.replace("\v", "") for line in wrapper.wrap(text)]


def _width(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)
