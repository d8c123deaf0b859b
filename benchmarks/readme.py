"""What README shows, made of the committed results: ``python -m benchmarks.readme`` writes its board and its figure."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from xalign_models.boards.leaderboard import leaderboard
from xalign_models.results.reading import read_results
from xalign_models.tables.formats import to_markdown

ROOT = Path(__file__).parents[1]
MODELS = (
    *(f"{method}__all-MiniLM-L6-v2" for method in ("plain", "lsar")),
    *(f"{method}__gemma-3-270m-q4" for method in ("plain", "lsar")),
    *(f"{method}__multilingual-e5-small-q4" for method in ("plain", "centered", "lsar", "affine")),
)
TASKS = ("SIB200ZeroShot", "STS17CrossLingual", "Tatoeba36", "XQuAD-R")
SHOWN = "multilingual-e5-small-q4"
BOARD = re.compile(r"(?<=<!-- board -->\n).*?(?=<!-- /board -->)", re.S)


def board() -> str:
    """The board of README, as Markdown."""
    return to_markdown(leaderboard(read_results(ROOT, tasks=TASKS), models=MODELS, tasks=TASKS), narrow=True)


def figure(target: Path) -> None:
    """The pool before and after LSAR, in the plane; drawn of what ``xalign analyse scatter`` wrote."""
    from xalign_models.figures import COLOURS, MARKERS, canvas, styled
    from xalign_models.languages import display_name

    folder = ROOT / "docs" / "results" / "analyses"
    with (folder / "scatter-points.csv").open(encoding="utf-8", newline="") as file:
        points = [row for row in csv.DictReader(file) if row["projection"] == "PCA"]
    with (folder / "scatter-mixing.csv").open(encoding="utf-8", newline="") as file:
        found = {row["model"]: float(row["neighbour_translation"]) for row in csv.DictReader(file)}
    titles = {f"xalign/plain__{SHOWN}": "before", f"xalign/lsar__{SHOWN}": "after LSAR"}
    languages = sorted({row["language"] for row in points})
    with styled():
        drawing, axes = canvas(1, 2, width=8.3, height=3.9)
        for axis, (model, title) in zip(axes[0], titles.items(), strict=True):
            for language, colour, marker in zip(languages, COLOURS, MARKERS, strict=False):
                rows = [row for row in points if (row["model"], row["language"]) == (model, language)]
                x, y = ([float(row[name]) for row in rows] for name in ("x", "y"))
                axis.scatter(x, y, s=14, c=colour, marker=marker, alpha=0.6, linewidths=0, label=display_name(language))
            axis.set_title(f"{title}\n{found[model]:.0f}% of nearest neighbours are translations")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_aspect("equal", adjustable="datalim")
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=1.8)
        target.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(target, metadata={"Date": None})


def main() -> None:
    """Write both."""
    readme = ROOT / "README.md"
    readme.write_text(BOARD.sub(lambda _: board(), readme.read_text("utf-8")), encoding="utf-8")
    figure(ROOT / "docs" / "images" / "before-after.svg")


if __name__ == "__main__":
    main()
