"""Figures of the linear-mapping analysis."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.languages import display_name

_MEASURES = {
    "dD": ("dD, relative fall of the mean distance", 0.0),
    "dC": ("dC, mean rise of the cosine", 0.0),
    "fD": ("fD, share with a smaller distance", 0.5),
    "fC": ("fC, share with a larger cosine", 0.5),
}
_FITS = {"lsq": "full", "distance": "none"}


def draw(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Gains per model and direction for maps fitted on Tatoeba, and shapes per model."""
    drawn = {}
    if not tables["gains"].empty:
        gains = tables["gains"][tables["gains"]["fit_text"] == "Tatoeba"]
        for (model, direction), part in gains.groupby(["model", "direction"], sort=False):
            suffix = "from-english" if direction.startswith("English") else "to-english"
            drawn[f"gains-{suffix}-{_slug(model)}"] = draw_gains(part, model, direction)
    for model, part in tables["shapes"].groupby("model", sort=False):
        drawn[f"shapes-{_slug(model)}"] = draw_shapes(part, model)
    return drawn


def _slug(model: str) -> str:
    return model.removeprefix("xalign/").replace("/", "__")


@figures.styled()
def draw_gains(gains: pd.DataFrame, model: str, direction: str) -> Figure:
    """A panel per measure: languages across, a colour per test text, filled markers for the least-squares fit."""
    languages = list(dict.fromkeys(gains["language"]))
    tests = list(dict.fromkeys(gains["test"]))
    figure, axes = figures.canvas(2, 2, width=10, height=7)
    for axis, (measure, (label, neutral)) in zip(axes.ravel().tolist(), _MEASURES.items(), strict=True):
        for index, test in enumerate(tests):
            look = {**figures.look(index), "linestyle": ""}
            for fit, fill in _FITS.items():
                part = gains[(gains["test"] == test) & (gains["fit"] == fit)]
                places = [languages.index(code) + 0.12 * (index - (len(tests) - 1) / 2) for code in part["language"]]
                axis.plot(places, part[measure], fillstyle=fill, label=f"{test}, {fit}", **look)
        axis.axhline(neutral, color="#555555", linewidth=1)
        axis.set_xticks(range(len(languages)), [display_name(code) for code in languages], rotation=30, ha="right")
        axis.set_title(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(tests), title="tested on, fit")
    least, most = gains["fit_pairs"].min(), gains["fit_pairs"].max()
    figure.suptitle(
        f"Gain of the linear map {direction.replace('->', 'to')}: {model.removeprefix('xalign/')}\n"
        f"fitted on {least} to {most} pairs of Tatoeba; it helps above the line",
        fontsize=11,
    )
    return figure


@figures.styled()
def draw_shapes(shapes: pd.DataFrame, model: str) -> Figure:
    """A point per language: deviation from orthogonality across, unevenness of the dilation up; 0, 0 is a rotation."""
    part = shapes[shapes["direction"].str.startswith("English")]
    figure, ((axis,),) = figures.canvas(width=8, height=6)
    for index, (text, points) in enumerate(part.groupby("fit_text", sort=False)):
        look = {**figures.look(index), "linestyle": ""}
        axis.plot(points["p_mean_abs"], points["alpha_std"], label=f"fitted on {text}", **look)
    codes = part["language"].str.partition("-")[0]
    figures.name_points(axis, zip(codes, part["p_mean_abs"], part["alpha_std"], strict=True))
    axis.legend()
    figures.describe(
        axis,
        f"How far the maps from English are from rotations: {model.removeprefix('xalign/')}\n"
        "each point is a language (ISO 639-3)",
        "mean |p|, cosine of different columns of A (0: orthogonal)",
        "sigma(alpha) / mean, spread of the column lengths (0: even dilation)",
    )
    return figure
