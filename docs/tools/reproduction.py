"""Writes ``docs/reproduction.md``, the status of each table of the papers: ``python -m docs.tools.reproduction``.

It reads ``xalign_models/published/reproduction.csv``. The papers' own numbers are in the tables beside that file.
"""

import json
from collections import Counter
from itertools import groupby
from operator import itemgetter

from docs.tools.sources import ROOT, records

PUBLISHED = "xalign_models/published"
PAGE = ROOT / "docs" / "reproduction.md"
ROWS = records(f"{PUBLISHED}/reproduction.csv")
"""A record for each table and figure, in the order of the page."""
STATUS = {
    "direction": "measured with other models; the page behind the link says whether the paper's finding holds there",
    "small scale": "measured with a small model of the same kind",
    "needs weights": "the command is there; the models, or a GPU for them, were not",
    "needs data": "the command is there; the data were not available",
    "settings": "no result: a configuration that is shipped",
    "not measured": "the code is there, the number is not",
    "not implemented": "not built",
    "no numbers": "a drawing or an example",
}


def page() -> str:
    """The page, as Markdown."""
    papers = json.loads((ROOT / PUBLISHED / "index.json").read_text("utf-8"))["papers"]
    counts = Counter(row["status"] for row in ROWS if row["item"].startswith("Table"))
    lines = [
        "# Reproduction",
        "",
        f"This page lists all {sum(counts.values())} tables of the five papers, and their figures. No table is "
        "reproduced with the paper's own models, because their weights and GPUs were not available.",
        "",
        "| status | tables | meaning |",
        "|---|---:|---|",
        *(f"| {status} | {counts[status]} | {meaning} |" for status, meaning in STATUS.items()),
    ]
    for paper, items in groupby(ROWS, itemgetter("paper")):
        group = list(items)
        head = "| of the paper | shows | status | command | remark |"
        lines += ["", f"## {papers[paper]['title']}", "", '<details markdown="1">']
        lines += [f"<summary>{len(group)} tables and figures</summary>", "", head, "|---|---|---|---|---|"]
        lines += [*map(_line, group), "", "</details>"]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, str]) -> str:
    command = f"`{row['command']}`" if row["command"] else ""
    link = f" [Measured]({row['ours']})." if row["ours"] else ""
    reason = f"{row['reason']}." if row["reason"] else ""
    return f"| {row['item']} | {row['shows']} | {row['status']} | {command} | {reason}{link} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
