"""Components that LSAR removes along its leading directions, by language family (the paper's Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.languages import display_name
from xalign_models.typology import family
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study

DIRECTIONS = 2
BINS = 48


def analyse(request: Request) -> Findings:
    """Components of Tatoeba's sentences along the first two directions that LSAR removes, grouped by family.

    Raises:
        XAlignError: A model or text is unavailable.
    """
    study = Study()
    for space, tatoeba in spaces.each_space(request, study):
        removed = components(spaces.by_language(space, tatoeba), space.lsar.basis_[:, :DIRECTIONS])
        model = space.backbone.name
        study.add("languages", summary(removed), model=model)
        study.add("separation", separation(removed, space.lsar.singular_values_), model=model)
        study.figures[f"histograms-{model}"] = draw(removed, model)
    return study.findings(
        "A direction's sign is free: it is chosen so that English is on the positive side. "
        "eta_squared is the share of the components' variance that lies between the groups."
    )


def components(
    vectors: Mapping[str, npt.NDArray[np.floating]], basis: npt.NDArray[np.float64]
) -> dict[str, npt.NDArray[np.float64]]:
    """Components (n, k) of each language's rows (n, d) along ``basis`` (d, k); English's are positive on average."""
    along = {language: rows.astype(np.float64) @ basis for language, rows in vectors.items()}
    sign = np.where(along[ENGLISH].mean(axis=0) < 0, -1.0, 1.0) if ENGLISH in along else 1.0
    return {language: rows * sign for language, rows in along.items()}


def eta_squared(groups: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Share of the variance of rows (n, k) that lies between groups of rows, per column (k,), in [0, 1]."""
    rows = np.concatenate(groups)
    centre = rows.mean(axis=0)
    between = sum(len(group) * (group.mean(axis=0) - centre) ** 2 for group in groups)
    share: npt.NDArray[np.float64] = between / np.maximum(((rows - centre) ** 2).sum(axis=0), np.finfo(float).tiny)
    return share


def by_family(removed: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, list[str]]:
    """Family to its languages, by the family's mean along the first direction, highest first."""
    groups: dict[str, list[str]] = {}
    for language in removed:
        groups.setdefault(family(language), []).append(language)

    def mean(name: str) -> float:
        return float(np.mean([removed[code][:, 0].mean() for code in groups[name]]))

    return {name: groups[name] for name in sorted(groups, key=mean, reverse=True)}


def separation(removed: Mapping[str, npt.NDArray[np.float64]], singular: npt.NDArray[np.float64]) -> pd.DataFrame:
    """A row per direction: its share of the differences between language means, and its separation of the groups."""
    families = by_family(removed).values()
    share = singular**2 / (singular**2).sum()
    languages = eta_squared(list(removed.values()))
    grouped = eta_squared([np.concatenate([removed[code] for code in members]) for members in families])
    return pd.DataFrame([
        {"direction": k + 1, "share_of_mean_differences": share[k], "eta_squared_families": grouped[k],
         "eta_squared_languages": languages[k], "families": len(families), "languages": len(removed)}
        for k in range(len(grouped))
    ])  # fmt: skip


def summary(removed: Mapping[str, npt.NDArray[np.float64]]) -> pd.DataFrame:
    """A row per language: family, sentences, mean and standard deviation along each direction."""
    return pd.DataFrame(
        [
            {"language": language, "name": display_name(language), "family": family(language), "sentences": len(rows)}
            | {
                f"{statistic}_{k + 1}": value[k]
                for statistic, value in (("mean", rows.mean(axis=0)), ("std", rows.std(axis=0)))
                for k in range(rows.shape[1])
            }
            for language, rows in removed.items()
        ]
    )


@figures.styled()
def draw(removed: Mapping[str, npt.NDArray[np.float64]], backbone: str) -> Figure:
    """One row per family, one column per direction: histograms of the removed components, each of the same height."""
    groups = by_family(removed)
    columns = next(iter(removed.values())).shape[1]
    figure, axes = figures.canvas(
        len(groups), columns, width=8, height=1.2 + 0.36 * len(groups), sharex="col", sharey=True
    )
    for k in range(columns):
        pooled = np.concatenate([rows[:, k] for rows in removed.values()])
        low, high = np.quantile(pooled, [0.001, 0.999])
        edges = np.linspace(low, high, BINS)
        for row, (name, members) in enumerate(groups.items()):
            axis = axes[row, k]
            values = np.concatenate([removed[code][:, k] for code in members])
            counts, _ = np.histogram(values.clip(low, high), edges)
            axis.stairs(counts / counts.max(), edges, fill=True, color=figures.COLOURS[0], alpha=0.75)
            axis.axvline(values.mean(), color=figures.COLOURS[1], linewidth=1.2)
            axis.set_yticks([])
            axis.spines["left"].set_visible(False)
            if k == 0:
                axis.set_ylabel(f"{name} ({len(members)})", rotation=0, ha="right", va="center", fontsize=9)
        axes[0, k].set_title(f"Direction {k + 1}")
        axes[-1, k].set_xlabel("component along the direction (no unit)")
        axes[-1, k].xaxis.set_major_locator(MaxNLocator(5, prune="both"))
    figure.suptitle(
        f"What LSAR removes from {backbone}, by language family (number of languages)\n"
        "histograms of Tatoeba sentences (each to its own peak); the orange line is the family's mean",
        fontsize=11,
    )
    return figure
