"""Numbers and figures behind the findings of ``docs/atlas.md``.

python -m docs.tools.atlas_figures    # writes docs/atlas/*.svg
"""

from dataclasses import dataclass
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.atlas import KINDS, Column, load_atlas
from xalign_models.atlas.statistics import (
    ENGLISH,
    Levels,
    association,
    levels,
    multilingual,
    organisation,
    properties,
    summarise,
)
from xalign_models.atlas.table import short_revision
from xalign_models.linalg.arrays import Float64, Mask
from xalign_tasks.analyses.atlas import BELEBELE, IN22, NTREX, draw_groups

FOLDER = Path(__file__).parents[1] / "atlas"
HUBS = Path(__file__).parents[1] / "results" / "atlas_hubs.csv"
LABELS = {"languages": "languages that the model names", "parameters": "parameters", "release_year": "release date"}
"""Properties of models, and their names in figures."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The values (models,) of a statistic of the multilingual models that have every language of a column.

    The scores are those of all models, of which ``multilingual`` marks these.
    """

    scores: Levels
    multilingual: Mask
    values: Float64

    def of(self, name: str) -> Float64:
        """A property of each model (models,); NaN if mteb's registry does not give it."""
        return properties(load_atlas(), self.scores, name)[self.multilingual]

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(compress(self.scores.models, self.multilingual))

    def correlation(self, name: str, about: str) -> dict[str, float]:
        """The statistic's rank correlation with a property, with its interval."""
        result = association(self.of(about), self.values, [organisation(model) for model in self.names])
        found = vars(result) if result else {}
        return {f"{name}.{field.replace('models', 'n')}": value for field, value in found.items()}

    def distribution(self, name: str) -> dict[str, float]:
        """The number of models, and where the statistic lies in them."""
        values, organisations = self.values, set(map(organisation, self.names))
        numbers = {"models": len(values), "median": np.median(values), "least": values.min(), "most": values.max()}
        numbers |= {"positive": (values > 0).sum(), "organisations": len(organisations)}
        return {f"{name}.{key}": float(value) for key, value in numbers.items()}


def measure(task: str | Column, statistic: str, scale: float = 100) -> Measured:
    """A statistic on a task's newest column, or on a column; in points, or times ``scale``."""
    atlas = load_atlas()
    scores = levels(atlas, atlas.column(task) if isinstance(task, str) else task)
    chosen = multilingual(scores)
    return Measured(scores, chosen, scale * summarise(scores)[statistic][chosen])


@cache
def findings() -> dict[str, float]:
    """The numbers behind the page's findings, by name: points, counts, rank correlations.

    ``other`` is the same on the task's other text, whose models are others.
    """
    rare = measure(NTREX, "low_resource_gap")
    numbers: dict[str, float] = {"rare.languages": int(rare.scores.low_resource.sum()), **_hubs()}
    for name, task, statistic in (("directions", BELEBELE, "asymmetry"), ("rare", NTREX, "low_resource_gap")):
        for which, column in zip(("", ".other"), columns_of_task(task), strict=False):
            numbers |= measure(column, statistic).distribution(name + which)
    for which, column in zip(("", ".other"), columns_of_task(NTREX), strict=False):
        numbers |= measure(column, "evenness", 1).correlation(f"breadth{which}.languages", "languages")
    for about in ("parameters", "release_year"):
        numbers |= rare.correlation(f"rare.{about}", about)
        numbers |= measure(NTREX, "evenness", 1).correlation(f"breadth.{about}", about)
    numbers |= measure(BELEBELE, "gap").correlation("withdrawn.size", "parameters")
    for name, task in (("ntrex", NTREX), ("in22", IN22), ("belebele", BELEBELE)):
        numbers |= measure(task, "low_resource_gap").correlation(f"withdrawn.training.{name}", "training_tasks")
    other = measure(columns_of_task(IN22)[1], "low_resource_gap")
    return numbers | other.correlation("withdrawn.training.in22.other", "training_tasks")


def columns_of_task(task: str) -> list[Column]:
    """The columns of a task, the one with most models first."""
    return [column for column in load_atlas().columns if column.task == task]


def _hubs() -> dict[str, float]:
    """How often English is a better pivot than the median language of IN22, raw and beside its strength."""
    numbers: dict[str, float] = {}
    for which, (_, part) in zip(("hub", "hub.other"), pd.read_csv(HUBS).groupby("text", sort=False), strict=True):
        for measure_ in ("raw", "residual"):
            table = part.pivot(index="model", columns="language", values=measure_)
            english = table["eng-Latn"]
            ranks = table.rank(axis=1, ascending=False, method="min")["eng-Latn"]
            below, first = (english < table.median(axis=1)).sum(), (ranks == 1).sum()
            found = {"median": english.median(), "below": below, "first": first, "rank": ranks.median()}
            numbers |= {f"{which}.{measure_}.{key}": float(value) for key, value in found.items()}
            numbers |= {f"{which}.models": len(table), f"{which}.languages": table.shape[1]}
    return numbers


def draw() -> dict[str, Figure]:
    """A figure for each finding, and those of groups and ranks, by name.

    Raises:
        AssetError: The families of languages are unavailable.
    """
    with figures.styled():
        return {"directions": _directions(), "rare": _rare(), "breadth": _breadth(), **draw_groups(load_atlas())}


def _against(axis: Axes, measured: Measured, about: str, **options: Any) -> None:
    """Multilingual models' values against a property from the registry; parameters on a scale such as 118M, 1B."""
    figures.draw_points(axis, measured.of(about), measured.values, **options)
    if about == "parameters":
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1e9:g}B" if value >= 1e9 else f"{value / 1e6:g}M")
        axis.xaxis.set_minor_formatter("")
    axis.set_xlabel(LABELS[about])


def _directions() -> Figure:
    column = load_atlas().column(BELEBELE)
    rows = np.array([column.row[model] for model in measure(BELEBELE, "level").names])
    places = np.array([place for place, language in enumerate(column.languages) if language != ENGLISH])
    into, leaving = (
        100 * column.scores[..., KINDS.index(kind)][np.ix_(rows, places)].mean(axis=1)
        for kind in ("english_into", "english_from")
    )
    order = np.argsort(into + leaving)
    title = "English questions find passages in a language more often than the reverse"
    labels = f"{len(order)} models, by their mean", "nDCG@10, mean of 121 languages (%)"
    figure, axis = figures.plot(title, *labels, height=4.6)
    x = np.arange(len(order))
    axis.vlines(x, leaving[order], into[order], color="#bbbbbb", linewidth=1.2)
    figures.draw_points(axis, x, into[order], s=16, marker="o", label="question in English, passages in the language")
    label = "question in the language, passages in English"
    figures.draw_points(axis, x, leaving[order], s=16, color=figures.COLOURS[1], marker="s", label=label)
    axis.legend(loc="upper left")
    axis.set_xticks([])
    return figure


def _rare() -> Figure:
    figure, (axes,) = figures.canvas(1, 2, width=8.6, height=4.2, sharey=True)
    for axis, about in zip(axes, ("parameters", "release_year"), strict=True):
        for index, column in enumerate(columns_of_task(NTREX)):
            look = {"color": figures.COLOURS[index], "marker": figures.MARKERS[index]}
            revision = f"text {short_revision(column.dataset_revision)}"
            _against(axis, measure(column, "low_resource_gap"), about, label=revision, **look)
        figures.from_zero(axis)
    axes[0].set_ylabel("frequently less rarely named\nlanguages (points of F1)")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle("Rarely named languages lag behind, whatever a model's size or date", fontsize=11)
    return figure


def _breadth() -> Figure:
    evenness = measure(NTREX, "evenness", 1)
    figure, (axes,) = figures.canvas(1, 3, width=10.5, height=3.8, sharey=True)
    for axis, about in zip(axes, LABELS, strict=True):
        _against(axis, evenness, about)
        figures.from_zero(axis)
    axes[0].set_ylabel("evenness: worst tenth of the\nlanguages over all (no unit)")
    figure.suptitle("Models that name more languages are more even; size and date say less", fontsize=11)
    return figure


if __name__ == "__main__":
    for name, figure in draw().items():
        figures.save(figure, FOLDER, name)
