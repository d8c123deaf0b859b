"""Numbers in pages that cannot rot: each names its source, and ``python -m docs.tools.claims`` computes it again.

A page marks a number with a comment right behind it, which a reader does not see:

    The median is 12.3<!-- claim: finding("english.median") --> points.

and a statement without a number with one that must be true:

    Centering helps.<!-- holds: score("centered__a", "STS17") > score("plain__a", "STS17") -->

The expression is arithmetic over :mod:`docs.tools.sources` and gives the number in the unit of the page; the page may
round it. A percent sign or closing asterisks may stand between the two. A table that :mod:`docs.tools.tables` makes
stands between two comments, and ``--write`` fills it in:

    <!-- table: name -->
    <!-- /table -->

Without names of pages, it checks all Markdown pages of the repository. It exits with 1 if a number differs from its
expression, an expression gives no number, or a table differs from the committed files.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.tools.sources import ROOT
from docs.tools.tables import TABLES, evaluate, table

_CLAIM = re.compile(
    r"(?P<number>[-−+]?\d[\d,]*(?:\.\d+)?)?\s?%?\**\s?<!--\s*(?P<kind>claim|holds):\s*(?P<expression>.+?)\s*-->",
    re.DOTALL,
)
_TABLE = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n\n?(?P<content>.*?)(?=<!-- /table -->)", re.DOTALL)


@dataclass(frozen=True)
class Claim:
    """A number as a page writes it, or a fact, with the expression that gives the number or must be true."""

    page: Path
    line: int
    number: str | None
    expression: str
    fact: bool = False

    def check(self) -> str | None:
        """The problem in words; None if there is none."""
        if self.number is None and not self.fact:
            return f"no number stands before {self.expression}"
        try:
            actual = float(evaluate(self.expression))
        except Exception as error:
            return f"{self.expression} gives no number ({type(error).__name__}: {error})"
        if self.number is None or self.fact:
            return None if actual else f"{self.expression} does not hold"
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
        yield Claim(page, line, match["number"], " ".join(match["expression"].split()), match["kind"] == "holds")


def tables(page: Path, *, write: bool = False) -> Iterator[str]:
    """The tables of a page that differ from the committed files, in words; ``write`` puts them right instead."""
    text = page.read_text(encoding="utf-8")

    def made(match: re.Match[str]) -> str:
        return f"<!-- table: {match['name']} -->\n\n{table(match['name'])}\n"

    for match in _TABLE.finditer(text):
        if match["name"] not in TABLES:
            raise KeyError(f"{page}: tables.toml has no table {match['name']}")
        if match[0] != made(match) and not write:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{page}:{line}: table {match['name']} differs from the committed files; rewrite it with --write"
    if write:
        page.write_text(_TABLE.sub(made, text), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Check pages, with ``--write`` after filling in their tables; returns the exit status."""
    pages = [Path(argument) for argument in arguments if argument != "--write"] or [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
    stale = [problem for page in pages for problem in tables(page, write="--write" in arguments)]
    stated = [claim for page in pages for claim in claims(page)]
    wrong = [f"{claim.page}:{claim.line}: {problem}" for claim in stated if (problem := claim.check()) is not None]
    for problem in (*stale, *wrong):
        print(problem)
    print(f"{len(stated)} claims in {len({claim.page for claim in stated})} pages, {len(wrong)} wrong")
    return 1 if stale or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
