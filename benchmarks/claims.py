"""Numbers in pages that cannot rot: each names what gives it, and ``python -m benchmarks.claims`` computes it again.

A page marks a number with a comment right behind it, which a reader does not see:

    The median is 12.3<!-- claim: finding("english.median") --> points.

The expression is arithmetic over the sources below and gives the number in the unit of the page; the page may round it.
A percent sign or closing asterisks may stand between the two. Without arguments all Markdown pages of the repository
are checked. Exits with 1 if a number is not what its expression gives, or an expression gives none.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_CLAIM = re.compile(
    r"(?P<number>[-−]?\d[\d,]*(?:\.\d+)?)?\s?%?\**\s?<!--\s*claim:\s*(?P<expression>.+?)\s*-->", re.DOTALL
)

SOURCES: dict[str, Callable[..., Any]] = {}
"""What an expression may call, by name."""


def source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a source."""
    SOURCES[function.__name__] = function
    return function


@source
def cell(path: str, column: str, **where: str) -> float:
    """A number of a CSV file: of the one row whose columns have these values."""
    rows = [row for row in _rows(path) if all(row[key] == str(wanted) for key, wanted in where.items())]
    if len(rows) != 1:
        raise LookupError(f"{path} has {len(rows)} rows with {where}")
    return float(rows[0][column])


@cache
def _rows(path: str) -> list[dict[str, str]]:
    with (ROOT / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@source
def value(path: str, *keys: str | int) -> float:
    """A number of a JSON file, by the keys that lead to it."""
    content = _json(path)
    for key in keys:
        content = content[key]
    return float(content)


@cache
def _json(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


@source
def finding(name: str) -> float:
    """A number behind a finding of ``xalign analyse atlas``."""
    from tasks.analyses.atlas import findings

    return findings()[name]


@source
def published(model: str, task: str, language: str, kind: str) -> float:
    """A published mean in percent: a cell of the packaged table of public results."""
    from xalign_models.atlas import KINDS, load_atlas

    column = load_atlas().column(task)
    return float(100 * column.scores[column.row[model], column.languages.index(language), KINDS.index(kind)])


@source
def held_out(name: str) -> float:
    """A figure of ``benchmarks.choose_holdout``, with the kind of the held-out task asked for."""
    return _held_out()[name]


@cache
def _held_out() -> dict[str, float]:
    from benchmarks.choose_holdout import held_out, summary
    from xalign_models.atlas import load_atlas

    return summary(list(held_out(load_atlas(), by_kind=True)))


@dataclass(frozen=True)
class Claim:
    """A number that a page states.

    Attributes:
        page: The page.
        line: The line of the number, from 1.
        number: As the page has it; None where there is no number before the comment.
        expression: What gives it.
    """

    page: Path
    line: int
    number: str | None
    expression: str

    def check(self) -> str | None:
        """What is wrong; None if nothing is."""
        if self.number is None:
            return f"no number stands before {self.expression}"
        try:
            actual = float(
                eval(self.expression, {"__builtins__": {}}, {**SOURCES, "abs": abs, "round": round})
            )  # the repository's own pages
        except Exception as error:
            return f"{self.expression} gives no number ({type(error).__name__}: {error})"
        stated = self.number.replace(",", "").replace("−", "-")
        half = 0.5 / 10 ** len(stated.partition(".")[2])
        if abs(float(stated) - actual) <= half * (1 + 1e-9):
            return None
        return f"says {self.number}, {self.expression} is {actual:.6g}"


def claims(page: Path) -> Iterator[Claim]:
    """The claims of a page."""
    text = page.read_text(encoding="utf-8")
    for match in _CLAIM.finditer(text):
        line = text.count("\n", 0, match.start("expression")) + 1
        yield Claim(page, line, match["number"], " ".join(match["expression"].split()))


def main(arguments: Sequence[str]) -> int:
    """Check pages; the exit status."""
    pages = [Path(argument) for argument in arguments] or [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
    found = [claim for page in pages for claim in claims(page)]
    wrong = [(claim, problem) for claim in found if (problem := claim.check()) is not None]
    for claim, problem in wrong:
        print(f"{claim.page}:{claim.line}: {problem}")
    print(f"{len(found)} claims in {len({claim.page for claim in found})} pages, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
