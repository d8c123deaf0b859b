"""Writes the board and the figure of README from the committed results: ``python -m docs.tools.readme``."""

import re
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import pandas as pd

from docs.tools.sources import ANALYSES, ROOT, analysis
from xalign_models.boards.leaderboard import leaderboard
from xalign_models.results.reading import Results, read_results
from xalign_models.tables.formats import to_markdown

TASKS = ("SIB200ZeroShot", "STS17CrossLingual", "Tatoeba36", "XQuAD-R")
SHOWN = "multilingual-e5-small-q4"
BOARD = re.compile(r"(?<=<!-- board -->\n).*?(?=<!-- /board -->)", re.S)


def models(results: Results) -> list[str]:
    """README's rows: of each backbone the plain one and the best one.

    The best one has the greatest mean over the columns, of those in the most columns.
    """
    shown = [row for row in leaderboard(results, tasks=TASKS, study=False).rows if not row.apart]
    chosen = []
    for _, group in groupby(shown, attrgetter("group")):
        rows = list(group)
        best = max(rows, key=lambda row: (len(row.cells), fmean(cell.score for cell in row.cells.values())))
        chosen += [row.name for row in rows if row.label == "plain" or row is best]
    return chosen


def board() -> str:
    """README's board in Markdown."""
    results = read_results(ROOT, tasks=TASKS)
    return to_markdown(leaderboard(results, models=models(results), tasks=TASKS), narrow=True)


def figure(target: Path) -> None:
    """Draw the pool of answers before and after LSAR, in the plane of ``xalign analyse scatter``."""
    from xalign_models.figures import COLOURS, MARKERS, canvas, save, styled
    from xalign_models.languages import display_name

    points = pd.read_csv(ROOT / ANALYSES / "scatter-points.csv").query("projection == 'PCA'")
    titles = {f"xalign/plain__{SHOWN}": "before", f"xalign/lsar__{SHOWN}": "after LSAR"}
    with styled():
        drawing, axes = canvas(1, 2, width=8.3, height=3.9)
        for axis, (model, title) in zip(axes[0], titles.items(), strict=True):
            sides = points[points["model"] == model].groupby("language")
            for (language, part), colour, marker in zip(sides, COLOURS, MARKERS, strict=False):
                look = {"c": colour, "marker": marker, "label": display_name(language)}
                axis.scatter(part["x"], part["y"], s=14, alpha=0.6, linewidths=0, **look)
            found = analysis("scatter-mixing", "neighbour_translation", model=model)
            axis.set_title(f"{title}\n{found:.0f}% of nearest neighbours are translations")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_aspect("equal", adjustable="datalim")
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=1.8)
    save(drawing, target.parent, target.stem)


def main() -> None:
    """Write the board and the figure."""
    readme = ROOT / "README.md"
    readme.write_text(BOARD.sub(lambda _: board(), readme.read_text("utf-8")), encoding="utf-8")
    figure(ROOT / "docs" / "images" / "before-after.svg")


if __name__ == "__main__":
    main()
