"""Figures of the atlas: one per finding, and heat maps of families and scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from xalign_models import figures
from xalign_models.atlas import KINDS, Atlas
from xalign_models.atlas.statistics import (
    ENGLISH,
    Levels,
    levels,
    multilingual,
    properties,
    rank_groups,
    summarise,
)
from xalign_models.atlas.table import short_revision
from xalign_models.linalg.arrays import Float64
from xalign_models.typology import family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MODELS, GROUPS, RANKED = 14, 12, 25
"""Rows and columns of a heat map at most, and the number of models whose ranks are drawn."""
NTREX, IN22, BELEBELE = "NTREXBitextMining", "IN22GenBitextMining", "BelebeleRetrieval"


def draw(atlas: Atlas) -> dict[str, Figure]:
    """All figures, by name.

    Raises:
        AssetError: The families of languages are unavailable.
    """
    with figures.styled():
        return {
            "english": _english(atlas),
            "directions": _directions(atlas),
            "size": _size(atlas),
            "rare": _rare(atlas),
            "small": _small(atlas),
            "breadth": _breadth(atlas),
            "training": _training(atlas),
            "families": _heat_map(atlas, "family", family),
            "scripts": _heat_map(atlas, "script", lambda language: language.split("-")[1]),
            "ranks": _ranks(atlas),
        }


def short(model: str) -> str:
    """The name without its organisation."""
    return model.rsplit("/", maxsplit=1)[-1]


def _name(axis: Axes, model: str, x: float, y: float, *, left: bool = False) -> None:
    """Mark a model's point and write its name beside it."""
    axis.plot(x, y, "o", color=figures.COLOURS[1])
    axis.annotate(
        short(model),
        (x, y),
        xytext=(-6 if left else 6, -3),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=8,
        color="#444444",
    )


def _english(atlas: Atlas) -> Figure:
    of = levels(atlas, atlas.column(IN22))
    statistics = summarise(of)
    chosen = multilingual(of)
    x = 100 * statistics["level"][chosen]
    y = x - 100 * statistics["english_centricity"][chosen]
    figure, axes = figures.canvas(height=5.2)
    axis = axes[0, 0]
    axis.plot([20, 100], [20, 100], color="#888888", linewidth=1)
    axis.annotate("no difference", (62, 63.5), rotation=40, color="#666666", fontsize=8, ha="center")
    axis.scatter(x, y, s=22, color=figures.COLOURS[0])
    figures.describe(
        axis,
        "Every multilingual model is better when English is one of the two languages",
        "F1 of pairs with English (%)",
        "F1 of pairs of two Indian languages (%)",
    )
    names = [model for model, keep in zip(of.models, chosen, strict=True) if keep]
    for place in (int(np.argmax(x)), int(np.argmin(x))):
        _name(axis, names[place], x[place], y[place])
    axis.set_xlim(48, 114)
    axis.set_ylim(20, 100)
    return figure


def _directions(atlas: Atlas) -> Figure:
    column = atlas.column(BELEBELE)
    of = levels(atlas, column)
    chosen = [model for model, keep in zip(of.models, multilingual(of), strict=True) if keep]
    rows = [column.row[model] for model in chosen]
    places = [place for place, language in enumerate(column.languages) if language != ENGLISH]
    into, leaving = (
        100
        * column.scores[np.ix_(np.array(rows), np.array(places), np.array([KINDS.index(kind)]))][:, :, 0].mean(axis=1)
        for kind in ("english_into", "english_from")
    )
    order = np.argsort(into + leaving)
    figure, axes = figures.canvas(height=4.6)
    axis = axes[0, 0]
    x = np.arange(len(order))
    axis.vlines(x, leaving[order], into[order], color="#bbbbbb", linewidth=1.2)
    axis.scatter(
        x,
        into[order],
        s=16,
        color=figures.COLOURS[0],
        marker="o",
        label="question in English, passages in the language",
    )
    axis.scatter(
        x,
        leaving[order],
        s=16,
        color=figures.COLOURS[1],
        marker="s",
        label="question in the language, passages in English",
    )
    axis.legend(loc="upper left")
    axis.set_xticks([])
    figures.describe(
        axis,
        "English questions find passages in a language more often than the reverse",
        f"{len(order)} models, by their mean",
        "nDCG@10, mean of 121 languages (%)",
    )
    return figure


def _against(
    axis: Axes, atlas: Atlas, of: Levels, about: str, y: Float64, names: Sequence[str] = (), **options: Any
) -> None:
    """Models' values against a property from the registry, sizes and dimensions on a logarithmic axis."""
    chosen = multilingual(of)
    x, y = properties(atlas, of, about)[chosen], y[chosen]
    axis.scatter(x, y, s=22, **{"color": figures.COLOURS[0], **options})
    if about in ("parameters", "dimension"):
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(_amount))
        axis.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    models = [model for model, keep in zip(of.models, chosen, strict=True) if keep]
    points = [
        (short(model), a, b) for model, a, b in zip(models, x, y, strict=True) if model in names and np.isfinite(a)
    ]
    axis.plot([x for _, x, _ in points], [y for _, _, y in points], "o", color=figures.COLOURS[1])
    figures.name_points(axis, points)


def _amount(value: float, _: object = None) -> str:
    return f"{value / 1e9:g}B" if value >= 1e9 else f"{value / 1e6:g}M" if value >= 1e6 else f"{value:g}"


def _size(atlas: Atlas) -> Figure:
    of = levels(atlas, atlas.column(BELEBELE))
    figure, axes = figures.canvas(height=4.4)
    gap = 100 * summarise(of)["gap"]
    names = ("intfloat/multilingual-e5-small", "BAAI/bge-m3", "Qwen/Qwen3-Embedding-8B")
    _against(axes[0, 0], atlas, of, "parameters", gap, names)
    figures.describe(
        axes[0, 0],
        "The cross-lingual gap is a little smaller in larger models",
        "parameters",
        "gap: same language less with English\n(points of nDCG@10)",
    )
    figures.from_zero(axes[0, 0])
    return figure


def _rare(atlas: Atlas) -> Figure:
    columns = [column for column in atlas.columns if column.task == NTREX]
    figure, axes = figures.canvas(1, 2, width=8.6, height=4.2, sharey=True)
    for panel, about, label in ((axes[0, 0], "parameters", "parameters"), (axes[0, 1], "release_year", "release date")):
        for series, column in enumerate(columns):
            of = levels(atlas, column)
            _against(
                panel,
                atlas,
                of,
                about,
                100 * summarise(of)["low_resource_gap"],
                color=figures.COLOURS[series],
                marker=figures.MARKERS[series],
                label=f"text {short_revision(column.dataset_revision)}",
            )
        panel.set_xlabel(label)
        figures.from_zero(panel)
    axes[0, 0].set_ylabel("frequently less rarely named\nlanguages (points of F1)")
    figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle("Rarely named languages lag behind, whatever a model's size or date", fontsize=11)
    return figure


def _small(atlas: Atlas) -> Figure:
    of = levels(atlas, atlas.column(NTREX))
    figure, axes = figures.canvas(height=4.6)
    level = 100 * summarise(of)["level"]
    size = properties(atlas, of, "parameters")
    axes[0, 0].scatter(size, level, s=22, color=figures.COLOURS[0])
    axes[0, 0].set_xscale("log")
    axes[0, 0].xaxis.set_major_formatter(FuncFormatter(_amount))
    for name in ("intfloat/multilingual-e5-small", "nvidia/NV-Embed-v2"):
        place = of.models.index(name)
        _name(axes[0, 0], name, size[place], level[place], left=True)
    figures.describe(
        axes[0, 0],
        "A multilingual model of 118M parameters is ahead of most of the largest",
        "parameters",
        "F1 of 120 languages with English (%)",
    )
    figures.from_zero(axes[0, 0])
    return figure


def _breadth(atlas: Atlas) -> Figure:
    of = levels(atlas, atlas.column(NTREX))
    evenness = summarise(of)["evenness"]
    figure, axes = figures.canvas(1, 3, width=10.5, height=3.8, sharey=True)
    titles = {"languages": "languages that the model names", "parameters": "parameters", "release_year": "release date"}
    for panel, (about, label) in zip(axes[0], titles.items(), strict=True):
        _against(panel, atlas, of, about, evenness)
        panel.set_xlabel(label)
        figures.from_zero(panel)
    axes[0, 0].set_ylabel("evenness: worst tenth of the\nlanguages over all (no unit)")
    figure.suptitle("Models that name more languages are more even; size and date say less", fontsize=11)
    return figure


def _training(atlas: Atlas) -> Figure:
    figure, axes = figures.canvas(1, 3, width=10.5, height=3.8, sharey=True)
    titles = {NTREX: "NTREX (F1)", IN22: "IN22 (F1)", BELEBELE: "Belebele (nDCG@10)"}
    for panel, (task, title) in zip(axes[0], titles.items(), strict=True):
        of = levels(atlas, atlas.column(task))
        gap = 100 * summarise(of)["low_resource_gap"]
        _against(panel, atlas, of, "training_tasks", gap)
        tasks, chosen = properties(atlas, of, "training_tasks"), multilingual(of)
        counts = [count for count in np.unique(tasks[chosen]) if np.isfinite(count)]
        medians = [np.median(gap[chosen & (tasks == count)]) for count in counts]
        panel.plot(counts, medians, "_", color=figures.COLOURS[1], markersize=16, markeredgewidth=2, label="median")
        panel.set_title(title)
        figures.from_zero(panel)
    axes[0, 0].set_ylabel("frequently less rarely named\nlanguages (points)")
    axes[0, 2].legend()
    figure.supxlabel("tasks of the atlas whose training data the model has seen, as its authors declare", fontsize=10)
    figure.suptitle("Rarely named languages lag less in models trained on data of multilingual tasks", fontsize=11)
    return figure


def _heat_map(atlas: Atlas, name: str, group: Callable[[str], str]) -> Figure:
    """Level by model and group of languages; the groups of most languages, the best models."""
    of = levels(atlas, atlas.column(NTREX))
    groups = np.array([group(language) for language in of.languages])
    labels, counts = np.unique(groups, return_counts=True)
    frequent = [str(label) for label in labels[np.argsort(-counts, kind="stable")][:GROUPS]]
    rows = np.argsort(-of.level.mean(axis=1), kind="stable")[:MODELS]
    values = np.stack([100 * of.level[np.ix_(rows, groups == label)].mean(axis=1) for label in frequent])
    order = np.argsort(-values.mean(axis=1))
    values, frequent = values[order].T, [frequent[place] for place in order]
    figure, axes = figures.canvas(width=9.6, height=5.4)
    axis = axes[0, 0]
    image = axis.imshow(values, cmap=figures.SEQUENTIAL, aspect="auto", vmin=max(0, values.min()), vmax=100)
    for (row, place), value in np.ndenumerate(values):
        dark = value < (values.min() + 100) / 2
        axis.text(place, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axis.grid(visible=False)
    axis.set_yticks(range(len(rows)), [short(of.models[row]) for row in rows])
    axis.set_xticks(
        range(len(frequent)), [f"{label} ({(groups == label).sum()})" for label in frequent], rotation=40, ha="right"
    )
    axis.set_title(f"F1 with English on NTREX, by {name} (number of languages)")
    figure.colorbar(image, ax=axis, label="F1 (%)", shrink=0.8)
    return figure


def _ranks(atlas: Atlas) -> Figure:
    figure, axes = figures.canvas(1, 2, width=10.5, height=5.6)
    for panel, task in zip(axes[0], (NTREX, BELEBELE), strict=True):
        of = levels(atlas, atlas.column(task))
        ranked = rank_groups(of.models, of.level)[:RANKED]
        for row in ranked:
            colour = figures.COLOURS[(row.group - 1) % len(figures.COLOURS)]
            panel.plot([row.lowest, row.highest], [row.rank, row.rank], color=colour, linewidth=2.2)
            panel.plot(row.rank, row.rank, "o", color=colour)
        panel.set_yticks([row.rank for row in ranked], [f"{short(row.model)}  {100 * row.mean:.1f}" for row in ranked])
        panel.tick_params(axis="y", labelsize=7.5)
        panel.invert_yaxis()
        figures.describe(panel, task, "rank, with its 95% interval", "")
    figure.suptitle(
        "Ranks over languages: a new colour begins where a model can be told from the group's first", fontsize=11
    )
    return figure
