"""The common style of figures, with colours for colour-blind readers and labels with units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xalign_models.paths import atomic_file

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is pale on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
SEQUENTIAL = "cividis"
"""Colour map of magnitudes, uniform for colour-blind readers and in print."""
STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # labels are text: they can be searched and take little room
    "svg.hashsalt": "xalign",
}
DPI = 150


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style temporarily, as a context or a decorator."""
    with matplotlib.rc_context(STYLE):
        yield


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 4.5, **options: Any
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """A figure of ``width`` x ``height`` inches and its axes (rows, columns); draw within :func:`styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: npt.NDArray[np.object_] = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def look(index: int) -> dict[str, Any]:
    """Colour, marker and line style of the ``index``-th series; the first 28 differ pairwise in two of the three."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[(index + index // len(COLOURS)) % len(MARKERS)],
        "linestyle": LINES[index // len(COLOURS) % len(LINES)],
    }


def describe(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title and the labels of the axes."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def from_zero(axes: Axes) -> None:
    """Let the y axis begin at 0 or below, with room for markers at its top."""
    bottom, top = axes.get_ylim()
    bottom = min(0.0, bottom)
    axes.set_ylim(bottom, top + 0.05 * (top - bottom))


def name_points(axes: Axes, points: Iterable[tuple[str, float, float]]) -> None:
    """Write (name, x, y) beside the points, alternating the side so that fewer names overlap."""
    sides = ((3, 3, "left"), (-3, -9, "right"), (3, -9, "left"), (-3, 3, "right"))
    for place, (name, x, y) in enumerate(sorted(points, key=lambda point: point[1])):
        right, up, side = sides[place % len(sides)]
        axes.annotate(
            name, (x, y), xytext=(right, up), textcoords="offset points", ha=side, fontsize=8, color="#444444"
        )


def save(figure: Figure, folder: Path, stem: str) -> Path:
    """Write ``<stem>.svg``; the same figure gives the same bytes."""
    path = folder / f"{stem}.svg"
    with styled(), atomic_file(path) as temporary:
        figure.savefig(temporary, format="svg", dpi=DPI, metadata={"Date": None})
    return path
