"""The common style of figures and the kinds of plot: colours for colour-blind readers, labels with units."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

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
styled = partial(matplotlib.rc_context, STYLE)
"""Apply the style temporarily, as a context or a decorator; `xalign analyse` runs within it."""


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 4.5, **options: Any
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """A figure of ``width`` x ``height`` inches and its axes (rows, columns); draw within :func:`styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: npt.NDArray[np.object_] = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def plot(title: str, x: str, y: str, **size: Any) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, their title and their labels; ``size`` as in :func:`canvas`."""
    figure, ((axes,),) = canvas(**size)
    describe(axes, title, x, y)
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


def draw_lines(axes: Axes, lines: Mapping[str, tuple[Any, Any]], **options: Any) -> None:
    """A line with markers for each label's (x, y), styled by :func:`look`; ``options`` override the style."""
    for index, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, **{**look(index), **options})


def draw_points(axes: Axes, x: Any, y: Any, **options: Any) -> None:
    """Points in the first colour without lines between them; ``options`` override the style."""
    axes.scatter(x, y, **{"s": 22, "color": COLOURS[0], **options})


def draw_histogram(axes: Axes, values: Any, index: int, label: str, **options: Any) -> None:
    """The outline of a histogram, in the colour of the ``index``-th series."""
    axes.hist(values, histtype="step", linewidth=1.8, color=look(index)["color"], label=label, **options)


def draw_heat_map(
    axes: Axes,
    values: npt.NDArray[np.floating[Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    limits: tuple[float, float],
    number: str = ".0f",
    *,
    dark: float | None = None,
    aspect: Literal["equal", "auto"] = "equal",
    **ticks: Any,
) -> AxesImage:
    """A coloured cell with its number for each value; NaN leaves a cell without a number.

    Args:
        axes: Where to draw.
        values: (rows, columns).
        rows: Their names.
        columns: Their names, which are tilted.
        limits: Values of the darkest and of the lightest colour.
        number: Format of the numbers; empty for cells without numbers.
        dark: Numbers below it are white; by default 55% of the way between the limits.
        aspect: ``equal`` for square cells, ``auto`` for cells that fill the axes.
        **ticks: Options of the names, such as ``fontsize``.
    """
    image = axes.imshow(values, vmin=limits[0], vmax=limits[1], cmap=SEQUENTIAL, aspect=aspect)
    tilt: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if "rotation" not in ticks else {}
    axes.set_xticks(range(len(columns)), columns, **tilt, **ticks)
    axes.set_yticks(range(len(rows)), rows, **{key: value for key, value in ticks.items() if key == "fontsize"})
    axes.grid(visible=False)
    dark = limits[0] + 0.55 * (limits[1] - limits[0]) if dark is None else dark
    for (row, column), value in np.ndenumerate(values):
        if number and np.isfinite(value):
            colour = "white" if value < dark else "black"
            axes.text(column, row, format(value, number), ha="center", va="center", fontsize=8, color=colour)
    return image


def name_points(axes: Axes, points: Iterable[tuple[str, float, float]]) -> None:
    """Write (name, x, y) beside the points, alternating the side so that fewer names overlap."""
    sides = ((3, 3, "left"), (-3, -9, "right"), (3, -9, "left"), (-3, 3, "right"))
    for place, (name, x, y) in enumerate(sorted(points, key=lambda point: point[1])):
        right, up, side = sides[place % len(sides)]
        axes.annotate(
            name, (x, y), xytext=(right, up), textcoords="offset points", ha=side, fontsize=8, color="#444444"
        )


def save(figure: Figure, folder: Path, stem: str, form: Literal["svg", "pdf"] = "svg") -> Path:
    """Write ``<stem>.svg`` or ``.pdf``; the same figure gives the same bytes."""
    path = folder / f"{stem}.{form}"
    with styled(), atomic_file(path) as temporary:
        figure.savefig(temporary, format=form, dpi=DPI, metadata={"Date" if form == "svg" else "CreationDate": None})
    return path
