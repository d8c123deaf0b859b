"""How evenly published models treat languages: statistics over the packaged table of mteb's public results."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.atlas import Atlas, load_atlas
from xalign_models.atlas.statistics import (
    MULTILINGUAL,
    PROPERTIES,
    Levels,
    association,
    levels,
    multilingual,
    organisation,
    properties,
    rank_groups,
    summarise,
    with_intervals,
)
from xalign_models.typology import family
from xalign_tasks.analyses.base import Study

NTREX, IN22, BELEBELE = "NTREXBitextMining", "IN22GenBitextMining", "BelebeleRetrieval"
TASKS = (NTREX, IN22, BELEBELE, "MLQARetrieval", "STS17", "SIB200ClusteringS2S")
FEWEST = 10
"""Columns with fewer models are left out."""
MODELS, GROUPS, RANKED = 14, 12, 25
"""Maximum rows and columns of a heat map, and number of models whose ranks are drawn."""


def analyse(request: Request) -> Findings:
    """Statistics of evenness, their correlations with size, dimension and date, and rank groups."""
    atlas = load_atlas()
    source = atlas.source
    study = Study({"public results": source["commit"]})
    for column in atlas.columns:
        if column.task not in TASKS or len((of := levels(atlas, column)).models) < FEWEST:
            continue
        study.add("associations", _associations(atlas, of), column=column.label)
        study.add("ranks", map(vars, rank_groups(of.models, of.level)), column=column.label)
        for name, (value, low, high) in with_intervals(of).items():
            rows = pd.DataFrame({"model": of.models, "statistic": name, "value": value, "low": low, "high": high})
            study.add("statistics", rows.dropna(subset="value"), column=column.label)
    study.figures = draw_groups(atlas)
    return study.findings(
        f"Source: {source['address']} at {source['commit'][:7]} ({source['date']}, {source['licence']}).",
        "A column is one task, one revision of its text and one metric; models of different columns are not compared.",
        f"Only models with every language of a column count. Multilingual: a level of {MULTILINGUAL:.0%} or more.",
        "Intervals of statistics resample languages, those of associations resample organisations; both are 95%.",
    )


def _associations(atlas: Atlas, of: Levels) -> Iterator[dict[str, object]]:
    statistics, clusters = summarise(of), np.array([organisation(model) for model in of.models])
    for whom, chosen in (("all", np.full(len(of.models), True)), ("multilingual", multilingual(of))):
        for name, values in statistics.items():
            for about in PROPERTIES:
                result = association(properties(atlas, of, about)[chosen], values[chosen], clusters[chosen].tolist())
                if result is not None:
                    found = {"rho": result.rho, "low": result.low, "high": result.high, "count": result.models}
                    yield {"models": whom, "statistic": name, "property": about, **found}


def short(model: str) -> str:
    """The name without its organisation."""
    return model.rsplit("/", maxsplit=1)[-1]


def draw_groups(atlas: Atlas) -> dict[str, Figure]:
    """Heat maps of families and scripts on NTREX, and the ranks that chance allows."""
    return {
        "families": _heat_map(atlas, "family", family),
        "scripts": _heat_map(atlas, "script", lambda language: language.split("-")[1]),
        "ranks": _ranks(atlas),
    }


def _heat_map(atlas: Atlas, name: str, group: Callable[[str], str]) -> Figure:
    """Level by model and group of languages: the best models, and the groups with the most languages."""
    of = levels(atlas, atlas.column(NTREX))
    groups = np.array([group(language) for language in of.languages])
    labels, counts = np.unique(groups, return_counts=True)
    frequent = [str(label) for label in labels[np.argsort(-counts, kind="stable")][:GROUPS]]
    rows = np.argsort(-of.level.mean(axis=1), kind="stable")[:MODELS]
    values = np.stack([100 * of.level[np.ix_(rows, groups == label)].mean(axis=1) for label in frequent])
    order = np.argsort(-values.mean(axis=1))
    values, frequent = values[order].T, [frequent[place] for place in order]
    figure, ((axis,),) = figures.canvas(width=9.6, height=5.4)
    image = figures.draw_heat_map(
        axis,
        values,
        [short(of.models[row]) for row in rows],
        [f"{label} ({(groups == label).sum()})" for label in frequent],
        (max(0, values.min()), 100),
        dark=(values.min() + 100) / 2,
        aspect="auto",
        rotation=40,
        ha="right",
    )
    axis.set_title(f"F1 with English on NTREX, by {name} (number of languages)")
    figure.colorbar(image, ax=axis, label="F1 (%)", shrink=0.8)
    return figure


def _ranks(atlas: Atlas) -> Figure:
    figure, (axes,) = figures.canvas(1, 2, width=10.5, height=5.6)
    for axis, task in zip(axes, (NTREX, BELEBELE), strict=True):
        of = levels(atlas, atlas.column(task))
        ranked = rank_groups(of.models, of.level)[:RANKED]
        for row in ranked:
            colour = figures.COLOURS[(row.group - 1) % len(figures.COLOURS)]
            axis.plot([row.lowest, row.highest], [row.rank, row.rank], color=colour, linewidth=2.2)
            axis.plot(row.rank, row.rank, "o", color=colour)
        axis.set_yticks([row.rank for row in ranked], [f"{short(row.model)}  {100 * row.mean:.1f}" for row in ranked])
        axis.tick_params(axis="y", labelsize=7.5)
        axis.invert_yaxis()
        figures.describe(axis, task, "rank, with its 95% interval", "")
    figure.suptitle(
        "Ranks over languages: a new colour begins where a model can be told from the group's first", fontsize=11
    )
    return figure
