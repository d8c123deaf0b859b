"""Verdicts of a gate: scores before and after, their verdicts, and their display."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from xalign_models.results.significance import ALPHA, holm
from xalign_models.tables.board import wrap
from xalign_models.tables.escaping import escape

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_NOISE = 1e-6  # points; of the subtraction and of a baseline's rounding: a fall of exactly the tolerance is allowed
MOST_SHOWN = 100
"""Maximum number of rows in a terminal and a summary; JSON and JUnit have all."""


class Verdict(StrEnum):
    """The verdict on a score."""

    FAIL = "fail"
    CANNOT_TELL = "cannot tell"
    PASS = "pass"


_ORDER = list(Verdict)


class GateRow(NamedTuple):
    """One score before and after; in percent.

    Attributes:
        model: Name of the model; ``throughput`` for times.
        task: Name of the task, or module of the benchmark.
        language: A language of a pair task, a subset of another one, or ``mean``.
        tolerance: Points that the score may fall.
        verdict: Whether it fell.
        reason: Why, in a few words.
        old: The score before; None if missing.
        new: The score now; None if missing.
        low: Lower end of the difference's 90% interval, in points; None without items.
        high: Upper end of the interval.
        p: p-value of a fall beyond the tolerance, corrected for all rows of the report; None without items.
    """

    model: str
    task: str
    language: str
    tolerance: float
    verdict: Verdict
    reason: str
    old: float | None = None
    new: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def difference(self) -> float | None:
        """New minus old, in points."""
        return None if self.old is None or self.new is None else self.new - self.old

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, task and language."""
        return self.model, self.task, self.language

    def explained(self) -> str:
        """The reason with the numbers, on one line that is safe to show."""
        if self.difference is None:
            return escape(self.reason)
        error = "" if self.low is None or self.high is None else f", 90% interval {self.low:+z.2f} to {self.high:+z.2f}"
        chance = "" if self.p is None else f", p {self.p:.2g}"
        text = f"{self.old:.2f} to {self.new:.2f} ({self.difference:+z.2f}{error}{chance}, allowed -{self.tolerance:g})"
        return f"{escape(self.reason)}: {text}"


@dataclass(frozen=True)
class GateReport:
    """All rows, the worst verdicts first; rich prints those that do not pass and one line of summary.

    Attributes:
        rows: Rows by verdict, model, task; ``mean`` before the languages.
        unguarded: (model, task) with new results and no old ones.
    """

    rows: tuple[GateRow, ...]
    unguarded: tuple[tuple[str, str], ...] = ()

    @property
    def exit_code(self) -> int:
        """0: no score fell; 1: a score fell; 3: none fell, but some cannot be judged."""
        verdicts = {row.verdict for row in self.rows}
        if Verdict.FAIL in verdicts:
            return 1
        return 0 if verdicts == {Verdict.PASS} else 3

    @property
    def open_rows(self) -> list[GateRow]:
        """Rows that do not pass."""
        return [row for row in self.rows if row.verdict != Verdict.PASS]

    def summary(self) -> str:
        """A summary in one line."""
        counts = [(verdict, sum(row.verdict == verdict for row in self.rows)) for verdict in _ORDER]
        counted = ", ".join(f"{verdict}: {n}" for verdict, n in counts if n) or "nothing to compare"
        word = {0: "passed", 1: "FAILED", 3: "CANNOT TELL"}[self.exit_code]
        noisy = [-row.low for row in self.rows if row.verdict == Verdict.CANNOT_TELL and row.low is not None]
        counted += f"; the items support a tolerance of {math.ceil(100 * max(noisy)) / 100:.2f} points" if noisy else ""
        notes = f"; new results without an old one: {len(self.unguarded)}" if self.unguarded else ""
        return f"Gate {word} ({counted}{notes})."

    def to_json(self) -> dict[str, Any]:
        """Plain data: every row, the summary and the exit code."""
        rows = [row._asdict() | {"difference": row.difference} for row in self.rows]
        plain = [{key: round(v, 9) if isinstance(v, float) else v for key, v in row.items()} for row in rows]
        return {"exit_code": self.exit_code, "summary": self.summary(), "rows": plain}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The rows that do not pass, if any, and the summary."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if self.open_rows:
            narrow = options.max_width <= 110  # names stay whole, and the reason has a line of its own
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
            for head in ("verdict", "score and reason") if narrow else ("verdict", "model", "task", "language", "why"):
                table.add_column(head, no_wrap=head == "verdict")
            for row in self.open_rows[:MOST_SHOWN]:
                verdict = Text(row.verdict, style="bold red" if row.verdict == Verdict.FAIL else "yellow")
                names = [escape(name) for name in (row.model.removeprefix("xalign/"), row.task, row.language)]
                if narrow:
                    table.add_row(verdict, Text(f"{'  '.join(names)}\n{row.explained()}"))
                else:
                    names[:2] = ("\n".join(wrap(name, 40)) for name in names[:2])
                    table.add_row(verdict, *map(Text, (*names, row.explained())))
            yield from (table, "")
            if len(self.open_rows) > MOST_SHOWN:
                yield Text(f"and {len(self.open_rows) - MOST_SHOWN} more; --json lists all.")
        yield Text(self.summary(), style="bold")


def decide(rows: Iterable[GateRow]) -> list[GateRow]:
    """Correct the p-values, judge the rows with numbers, and sort the worst first.

    Fail: a fall beyond the tolerance is proven, at 5% over the report. Pass: such a fall is ruled out at 5%, as the
    lower end of the interval is within the tolerance. Cannot tell: neither. Without items, the tolerance alone decides.

    The correction is the closed test of weighted Bonferroni tests: a mean has the weight of all its languages together,
    and leaves it to them once its fall is proven.
    """
    rows = list(rows)
    tested = [index for index, row in enumerate(rows) if row.p is not None]
    languages = Counter(rows[index].key[:2] for index in tested)
    weights = [max(languages[rows[i].key[:2]] - 1, 1) if rows[i].language == "mean" else 1 for i in tested]
    corrected = holm([float(rows[index].p or 0) for index in tested], weights).tolist()
    p_values = dict(zip(tested, corrected, strict=True))
    rows = [row if row.difference is None else _decided(row, p_values.get(i)) for i, row in enumerate(rows)]
    return sorted(rows, key=lambda row: (_ORDER.index(row.verdict), *row.key[:2], row.language != "mean", row.language))


def _decided(row: GateRow, p: float | None) -> GateRow:
    assert row.difference is not None
    if row.difference < -row.tolerance - _NOISE if p is None else p < ALPHA:
        return row._replace(p=p, verdict=Verdict.FAIL, reason="fell")
    if (row.difference if row.low is None else row.low) >= -row.tolerance - _NOISE:
        return row._replace(p=p, verdict=Verdict.PASS, reason="kept up")
    return row._replace(p=p, verdict=Verdict.CANNOT_TELL, reason="too few items to tell")
