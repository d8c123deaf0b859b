"""Linear maps between English and each language: their gains, and their distance from rotations.

Vasilyev et al., 2023 (arXiv:2305.14256). The paper's tables are images without text, so we compare the statements that
its text makes about them with our numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.alignments import dilation, orthogonality
from xalign_models.alignments.orthogonality import determined_map
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import canonical, display_name
from xalign_models.linalg.arrays import Float64, unit
from xalign_models.linalg.solvers import affine_distance, affine_lsq
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.published import published_table
from xalign_tasks.analyses.base import encoders, slug
from xalign_tasks.analyses.mapping_texts import MappingText, open_texts
from xalign_tasks.orthogonality import RIDGE, map_gains

Fit = Callable[[Float64, Float64], tuple[Float64, Float64]]

PAIRS = 3000
"""Maximum number of pairs per language, from the top of its file."""
COMPARED = 0.75
"""Share of these pairs that a shape is measured on; at least this share is not held out in any language."""
GAINED = tuple(canonical(code) for code in "de es fr it pt ru".split())
"""The languages of the paper's Table 1."""
FROM_ENGLISH, TO_ENGLISH = "English -> other", "other -> English"
MEASURES = {
    "dD": ("dD, relative fall of the mean distance", 0),
    "dC": ("dC, mean rise of the cosine", 0),
    "fD": ("fD, share with a smaller distance", 0.5),
    "fC": ("fC, share with a larger cosine", 0.5),
}
"""Columns of gains, their names in figures, and the values that mean no gain."""
WORST = ["ber-Latn", "epo-Latn"]
"""Languages whose maps are furthest from rotations in the paper."""


def analyse(request: Request) -> Findings:
    """Gains of the maps of the paper's languages, and shapes of the maps of all languages with enough pairs.

    Gains: both fits and both directions, on every text. Shapes: of the map determined by the data, from English to
    every language and back from the paper's, each with the same number of pairs, because fewer look less like a
    rotation. Requested languages are all studied in full.

    Raises:
        DataError: Tatoeba's pairs are missing, or too few for a map in any language.
        LanguageError: The pairs lack a requested language.
        XAlignError: A model is unavailable.
    """
    texts, notes = open_texts()
    have = {ENGLISH, *(code for text in texts if text.fitted_on for code in text.languages)}
    if not have >= {*(request.languages or ())}:
        raise LanguageError(f"The pairs have {', '.join(sorted(have))}; choose among these with --languages.")
    rows = request.rows or PAIRS
    on = pick_device(request.device)
    fits: dict[str, Fit] = {
        "lsq": partial(affine_lsq, ridge=RIDGE),
        "distance": partial(affine_distance, device=on if on.startswith("cuda") else "cpu"),
    }
    gains: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    for model, encoder in encoders(request):
        sparse = set()
        for text in (text for text in texts if text.fitted_on):
            for language in _languages(encoder, text, request, rows):
                full = language in (request.languages or GAINED)
                found = study(encoder, language, text, texts, rows, fits if full else {})
                if not found[1]:
                    sparse.add(f"{display_name(language)} ({text.name})")
                for table, part in zip((gains, shapes), found, strict=True):
                    table += [{"model": model, **row} for row in part]
        if sparse:
            notes.append(f"{model}: too few pairs for its dimension, left out: {', '.join(sorted(sparse))}.")
    if not shapes:
        raise DataError(
            f"No language has enough of its first {rows} pairs for a map; raise --rows or choose other --languages."
        )
    tables = {"gains": pd.DataFrame(gains), "shapes": pd.DataFrame(shapes)}
    tables["directions"] = directions(**tables)
    tables["published"] = published_table("linear-mapping-table-01.csv")
    notes += [
        f"The first {rows} pairs of each language; one in five is held out, by its English sentence. Shapes are "
        f"measured on {int(COMPARED * rows)} of the others (column pairs), if requested or with {rows} pairs. "
        "A shape is that of the least-squares map, with the rotation's columns where English hardly varies; "
        "p_mean_abs_shuffled is that of shuffled pairs, a floor.",
        "dD: fall of the mean distance over the smaller of the two; dC: mean rise of the cosine; fD, fC: share of "
        "pairs that came closer. Unit vectors.",
        "The paper's tables are lost but for one value (published); directions holds what its text says of them.",
    ]
    drawn = draw(tables["gains"], tables["shapes"])
    return Findings(tables, drawn, tuple(notes), {text.name: text.fingerprint for text in texts})


def _languages(encoder: XAlignEncoder, text: MappingText, request: Request, rows: int) -> list[str]:
    """Languages of a text to study: the requested ones, else all with at least ``rows`` pairs."""
    if request.languages:
        chosen = [code for code in request.languages if code in text.languages]
    else:
        chosen = sorted(code for code in text.languages if len(text.read(code)[0]) >= rows)
    unknown = encoder.unfitted([*chosen, ENGLISH])
    return [] if ENGLISH in unknown else [code for code in chosen if code not in unknown]


def study(
    encoder: XAlignEncoder, language: str, text: MappingText, texts: list[MappingText], rows: int, fits: dict[str, Fit]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fit a language's maps on ``text`` and test them on ``texts``, using the first ``rows`` pairs of each.

    Without ``fits``, the fitting functions by name, only the shape of the map from English is studied.

    Returns:
        Rows of the tables of gains and of shapes; none if the pairs do not determine a map.
    """

    def embedded(sides: tuple[list[str], list[str]]) -> dict[str, Float64]:  # as sources of maps, by direction
        codes = {TO_ENGLISH: language, FROM_ENGLISH: ENGLISH}
        ends = zip(codes.items(), sides, strict=True)
        return {way: unit(encoder.encode_texts(side, [code] * len(side), progress=code)) for (way, code), side in ends}

    fitted = embedded(text.sides(language, rows)[0])
    if len(fitted[FROM_ENGLISH]) <= fitted[FROM_ENGLISH].shape[1]:
        return [], []
    tested = ((one.name, one.sides(language, rows)[1]) for one in texts if fits and language in one.languages)
    tests = {name: embedded(sides) for name, sides in tested if sides[0]}
    gains, shapes = [], []
    for direction, back in ((FROM_ENGLISH, TO_ENGLISH), (TO_ENGLISH, FROM_ENGLISH))[: 2 if fits else 1]:
        x, y = fitted[direction], fitted[back]
        key = {"fit_text": text.name, "language": language, "name": display_name(language), "direction": direction}
        shapes.append({**key, **shape(*(side[: int(COMPARED * rows)] for side in (x, y)))})
        for fit, solve in fits.items():
            weight, shift = solve(x, y)
            for test, sides in tests.items():
                measured, _ = map_gains(a := sides[direction], sides[back], a @ weight + shift)
                sizes = {"fit": fit, "fit_pairs": len(x), "test": test, "test_pairs": len(a)}
                gains.append({**key, **sizes, **measured})
    return gains, shapes


def shape(source: Float64, target: Float64) -> dict[str, float | bool]:
    """Orthogonality (eqs. 11-16) and dilation (eqs. 17-20) of the map of unit rows (n, d) to their translations'."""
    weight = determined_map(source, target)
    p, alpha = orthogonality(weight), dilation(weight)
    shuffled = np.random.default_rng(0).permutation(len(target))
    return {
        "pairs": len(source),
        **{f"p_{key}": value for key, value in asdict(p).items()},
        "p_exceeds_0.383": p.exceeds,
        "p_mean_abs_shuffled": orthogonality(determined_map(source, target[shuffled])).mean_abs,
        **{f"alpha_{key}": value for key, value in asdict(alpha).items()},
    }


def directions(gains: pd.DataFrame, shapes: pd.DataFrame) -> pd.DataFrame:
    """Statements of the paper's text about its tables, and number of our cases that support them, by model and fit."""
    said = []
    for model, part in shapes[shapes["direction"] == FROM_ENGLISH].groupby("model", sort=False):
        said += [(model, "lsq", statement, cases.sum(), len(cases)) for statement, cases in _of_shapes(part)]
    for (model, fit), part in gains.groupby(["model", "fit"], sort=False) if len(gains) else ():
        said += [(model, fit, statement, cases.sum(), len(cases)) for statement, cases in _of_gains(part)]
    return pd.DataFrame(said, columns=["model", "fit", "the_paper_says", "holds", "of"])


def _of_gains(gains: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    gains = gains[(gains["fit_text"] == "Tatoeba") & (gains["direction"] == FROM_ENGLISH)]
    for test, cells in gains[gains["test"] != "newstest"].groupby("test", sort=False):
        for measure, (_, least) in MEASURES.items():
            yield f"{measure} > {least} on {test}", cells[measure] > least


def _of_shapes(shapes: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    tatoeba, news = (shapes[shapes["fit_text"] == text].set_index("language") for text in ("Tatoeba", "newstest"))
    others = tatoeba.drop(WORST, errors="ignore")
    for language in tatoeba.index.intersection(WORST):
        for column, label in (("p_mean_abs", "mean |p|"), ("alpha_std", "sigma(alpha) / mean")):
            yield f"{display_name(language)}: {label} above others'", tatoeba.loc[language, column] > others[column]
    shared = tatoeba.index.intersection(news.index)
    if len(shared):
        closer = tatoeba.loc[shared, "p_mean_abs"] < news.loc[shared, "p_mean_abs"]
        yield "mean |p| lower if fitted on Tatoeba than on formal text (theirs UN, ours newstest)", closer


def draw(gains: pd.DataFrame, shapes: pd.DataFrame) -> dict[str, Figure]:
    """Gains per model and direction for maps fitted on Tatoeba, and shapes per model."""
    drawn = {}
    if len(gains):
        on_tatoeba = gains[gains["fit_text"] == "Tatoeba"]
        for (model, direction), part in on_tatoeba.groupby(["model", "direction"], sort=False):
            suffix = "from-english" if direction == FROM_ENGLISH else "to-english"
            drawn[f"gains-{suffix}-{slug(model)}"] = draw_gains(part, model, direction)
    for model, part in shapes[shapes["direction"] == FROM_ENGLISH].groupby("model", sort=False):
        drawn[f"shapes-{slug(model)}"] = draw_shapes(part, model)
    return drawn


def draw_gains(gains: pd.DataFrame, model: str, direction: str) -> Figure:
    """A panel per measure: languages across, a colour per test text, filled markers for the least-squares fit."""
    languages, tests = gains["language"].unique().tolist(), gains["test"].unique().tolist()
    figure, axes = figures.canvas(2, 2, width=10, height=7)
    for axis, (measure, (label, neutral)) in zip(axes.ravel().tolist(), MEASURES.items(), strict=True):
        for (index, test), (fit, fill) in product(enumerate(tests), {"lsq": "full", "distance": "none"}.items()):
            look = {**figures.look(index), "linestyle": "", "fillstyle": fill}
            part = gains[(gains["test"] == test) & (gains["fit"] == fit)]
            places = part["language"].map(languages.index) + 0.12 * (index - (len(tests) - 1) / 2)
            axis.plot(places, part[measure], label=f"{test}, {fit}", **look)
        axis.axhline(neutral, color="#555555", linewidth=1)
        axis.set_xticks(range(len(languages)), [display_name(code) for code in languages], rotation=30, ha="right")
        axis.set_title(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(tests), title="tested on, fit")
    least, most = gains["fit_pairs"].min(), gains["fit_pairs"].max()
    title = f"Gain of the linear map {direction.replace('->', 'to')}: {model.removeprefix('xalign/')}"
    below = f"fitted on {least} to {most} pairs of Tatoeba; it helps above the line"
    figure.suptitle(f"{title}\n{below}", fontsize=11)
    return figure


def draw_shapes(part: pd.DataFrame, model: str) -> Figure:
    """A point per language: deviation from orthogonality across, unevenness of the dilation up; 0, 0 is a rotation."""
    title = f"How far the maps from English are from rotations: {model.removeprefix('xalign/')}"
    across = "mean |p|, cosine of different columns of A (0: orthogonal)"
    up = "sigma(alpha) / mean, spread of the column lengths (0: even dilation)"
    figure, axis = figures.plot(f"{title}\neach point is a language (ISO 639-3)", across, up, width=8, height=6)
    texts = part.groupby("fit_text", sort=False)
    points = {f"fitted on {text}": (rows["p_mean_abs"], rows["alpha_std"]) for text, rows in texts}
    figures.draw_lines(axis, points, linestyle="")
    codes = part["language"].str.partition("-")[0]
    figures.name_points(axis, zip(codes, part["p_mean_abs"], part["alpha_std"], strict=True))
    axis.legend()
    return figure
