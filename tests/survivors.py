"""What ``mutmut run`` found, as a Markdown table by module: ``python -m tests.survivors``; the survivors below it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

_SURVIVED = 0
_ENDED = {_SURVIVED: "survived", 1: "caught", 33: "no test", None: "not tried"}
COLUMNS = ("caught", "timed out", "survived", "no test", "not tried")


def table(folder: Path) -> tuple[str, list[str]]:
    """The table of the mutants below a folder, and the names of those that survived."""
    lines = [f"| module | mutants | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    survivors: list[str] = []
    total: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.meta")):
        ended = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        counts = Counter(_ENDED.get(code, "timed out") for code in ended.values())
        if ended:
            lines.append(_line(str(path.relative_to(folder)).removesuffix(".meta"), counts))
        survivors += [name for name, code in ended.items() if code == _SURVIVED]
        total += counts
    return "\n".join([*lines, _line("all", total)]), survivors


def _line(name: str, counts: Counter[str]) -> str:
    return f"| {name} | {counts.total()} | {' | '.join(str(counts[column]) for column in COLUMNS)} |"


if __name__ == "__main__":
    found, names = table(Path(sys.argv[1] if len(sys.argv) > 1 else "mutants"))
    print(found, "", *names, sep="\n")  # noqa: T201
