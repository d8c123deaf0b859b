"""How a terminal shows rows of text that may be wider than it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from rich.cells import cell_len

from xalign_models.tables.board import pieces

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2  # characters between columns
_WRAP, _SHRINK = 40, 24
"""Characters of a cell that stay on one line where space is short: usually, and if that keeps the columns together."""
_ADDRESS = re.compile(r"https?://\S+")


def listing(
    heads: Sequence[str], lines: Sequence[Sequence[str]], right: Collection[str], room: int
) -> tuple[list[Table], list[str]]:
    """Rows as one table, or as several below each other where the columns do not fit side by side.

    The first column names the rows and opens every table. In rows that are too wide, cells are wrapped, and a number
    stands for each web address, since nobody can open one that is broken into lines.

    Args:
        heads: Headers of the columns, at least one.
        lines: Cells of each row, escaped.
        right: Headers of the columns to align to the right.
        room: Width of the terminal in characters.

    Returns:
        The tables, and a line with each number and its address.
    """
    columns = list(zip(heads, *lines, strict=True))
    whole = [max(map(cell_len, column)) for column in columns]
    if _total(whole) <= room:
        return [_table(columns, whole, right)], []
    numbers: dict[str, int] = {}
    for place, (head, *cells) in enumerate(columns):
        columns[place] = (head, *(_number(cell, numbers) if _ADDRESS.fullmatch(cell) else cell for cell in cells))
    shares = [_Share.of(column, _SHRINK if place else _WRAP) for place, column in enumerate(columns)]
    parts = [[*range(1, len(columns))]]
    if _total([share.least for share in shares]) > room:
        shares = [_Share.of(column, _WRAP) for column in columns]
        behind = pieces([_GAP + share.least for share in shares[1:]], shares[0].least, room)
        parts = [[1 + place for place in piece] for piece in behind]
    tables = []
    for part in ([0, *part] for part in parts):
        widths = _shared([shares[place] for place in part], room)
        tables.append(_table([columns[place] for place in part], widths, right))
    return tables, [f"[{number}] {address}" for address, number in numbers.items()]


class _Share(NamedTuple):
    """Widths of a column: with nothing wrapped, with the header wrapped, and with the cells wrapped as well."""

    whole: int
    cells: int
    least: int

    @classmethod
    def of(cls, column: Sequence[str], limit: int) -> Self:
        head, *rows = column
        word = max(map(cell_len, head.split()), default=0)
        cells = max(word, *map(cell_len, rows), 0)
        return cls(max(cells, cell_len(head)), cells, max(word, min(cells, limit)))


def _number(address: str, numbers: dict[str, int]) -> str:
    return f"[{numbers.setdefault(address, len(numbers) + 1)}]"


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shared(shares: Sequence[_Share], room: int) -> list[int]:
    """Widths that fit: the widest columns are narrowed down to the least, and further if nothing else is left."""
    widths = [share.whole for share in shares]
    if _total(widths) > room:
        widths = [share.cells for share in shares]
    while _total(widths) > room and max(widths) > 1:
        loose = [place for place, share in enumerate(shares) if widths[place] > share.least] or range(len(widths))
        widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def _table(columns: Sequence[Sequence[str]], widths: Sequence[int], right: Collection[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for (head, *_), width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if head in right else "left"
        table.add_column(_wrapped(head, width), justify=justify, width=width, overflow="fold")
    for row in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*map(_wrapped, row, widths))
    return table


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=" " not in text))  # fra-Latn in a list stays whole
