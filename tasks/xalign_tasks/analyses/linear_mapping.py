"""Linear maps between English and each language: their gains, and their distance from rotations.

Vasilyev et al., 2023 (arXiv:2305.14256). Their tables are images without text; the statements of their text about the
tables are compared with our numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
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
from xalign_models.errors import DataError
from xalign_models.languages import canonical, display_name
from xalign_models.linalg.arrays import Float64, unit
from xalign_models.linalg.solvers import affine_distance, affine_lsq
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.published import published_table
from xalign_tasks.analyses.mapping_texts import MappingText, open_texts
from xalign_tasks.orthogonality import RIDGE, map_gains

Fit = Callable[[Float64, Float64], tuple[Float64, Float64]]

PAIRS = 3000
"""Maximum number of pairs per language, from the top of its file."""
COMPARED = 0.75
"""Share of these pairs that a shape is measured on; in every language at least this share is not held out."""
GAINED = tuple(canonical(code) for code in "de es fr it pt ru".split())
"""The languages of the paper's Table 1."""
FROM_ENGLISH, TO_ENGLISH = "English -> other", "other -> English"
MEASURES = ("dD", "dC", "fD", "fC")
WORST = ["ber-Latn", "epo-Latn"]
"""Languages whose maps the paper found furthest from rotations."""


def analyse(request: Request) -> Findings:
    """Gains of the maps of the paper's languages, and shapes of the maps of all that have enough pairs.

    Gains: both fits and both directions, on every text. Shapes: of the map that the data determine, from English to
    every language and back from the paper's, each of the same number of pairs, since fewer make less of a rotation.
    Requested languages are all studied in full.

    Raises:
        DataError: Tatoeba's pairs are missing, or too few for a map in any language.
        XAlignError: A model is unavailable.
    """
    texts, notes = open_texts()
    rows = request.rows or PAIRS
    on = pick_device(request.device)
    fits: dict[str, Fit] = {
        "lsq": partial(affine_lsq, ridge=RIDGE),
        "distance": partial(affine_distance, device=on if on.startswith("cuda") else "cpu"),
    }
    rows_of: dict[str, list[dict[str, Any]]] = {"gains": [], "shapes": []}
    for name in request.named():
        encoder = request.load(name)
        model, sparse = str(encoder.mteb_model_meta.name), set()
        for text in (text for text in texts if text.fitted_on):
            for language in _languages(encoder, text, request, rows):
                full = language in (request.languages or GAINED)
                studied = study(encoder, language, text, texts, rows, fits if full else {})
                if not studied[1]:
                    sparse.add(f"{display_name(language)} ({text.name})")
                for table, part in zip(rows_of, studied, strict=True):
                    rows_of[table] += [{"model": model, **row} for row in part]
        if sparse:
            notes.append(f"{model}: too few pairs for its dimension, left out: {', '.join(sorted(sparse))}.")
    if not rows_of["shapes"]:
        raise DataError(
            f"No language has enough of its first {rows} pairs for a map; raise --rows or choose other --languages."
        )
    tables = {table: pd.DataFrame(rows) for table, rows in rows_of.items()}
    tables["directions"] = directions(tables["gains"], tables["shapes"])
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
    return Findings(tables, draw(tables), tuple(notes), {text.name: text.fingerprint for text in texts})


def _languages(encoder: XAlignEncoder, text: MappingText, request: Request, rows: int) -> list[str]:
    """Languages of a text to study: the requested ones, else those with at least ``rows`` pairs."""
    if request.languages:
        chosen = [code for code in request.languages if code in text.languages]
    else:
        chosen = sorted(code for code in text.languages if len(text.read(code)[0]) >= rows)
    unknown = encoder.unfitted([*chosen, ENGLISH])
    return [] if ENGLISH in unknown else [code for code in chosen if code not in unknown]


def study(
    encoder: XAlignEncoder,
    language: str,
    text: MappingText,
    texts: list[MappingText],
    rows: int,
    fits: Mapping[str, Fit],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fit the maps of a language on ``text`` and test them on ``texts``, of each the first ``rows`` pairs.

    Without ``fits``, the fitting functions by name, only the shape of the map from English is studied.

    Returns:
        Rows of the tables of gains and of shapes; none if the pairs do not determine a map.
    """
    y, x = _embed(encoder, text.sides(language, rows)[0], language)
    if len(x) <= x.shape[1]:
        return [], []
    tests = {}
    for tested in texts if fits else ():
        if language in tested.languages and (sides := tested.sides(language, rows)[1])[0]:
            tests[tested.name] = _embed(encoder, sides, language)
    gains, shapes = [], []
    for direction in (FROM_ENGLISH, TO_ENGLISH) if fits else (FROM_ENGLISH,):
        source, target = (x, y) if direction == FROM_ENGLISH else (y, x)
        key = {"fit_text": text.name, "language": language, "name": display_name(language), "direction": direction}
        shapes.append({**key, **shape(*(side[: int(COMPARED * rows)] for side in (source, target)))})
        for fit, solve in fits.items():
            weight, shift = solve(source, target)
            for test, (foreign, english) in tests.items():
                a, b = (english, foreign) if direction == FROM_ENGLISH else (foreign, english)
                measured, _ = map_gains(a, b, a @ weight + shift)
                fitted = {**key, "fit": fit, "fit_pairs": len(x)}
                gains.append({**fitted, "test": test, "test_pairs": len(a), **measured})
    return gains, shapes


def _embed(encoder: XAlignEncoder, sides: tuple[list[str], list[str]], language: str) -> tuple[Float64, Float64]:
    """Unit vectors (n, d) of texts of a language, and of their English counterparts."""
    foreign, english = (
        unit(encoder.encode_texts(texts, [code] * len(texts), progress=code))
        for texts, code in zip(sides, (language, ENGLISH), strict=True)
    )
    return foreign, english


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
    """Statements of the paper's text about its tables, and how many of our cases support them, by model and fit."""
    said = []
    for model, part in shapes[shapes["direction"] == FROM_ENGLISH].groupby("model", sort=False):
        said += [(model, "lsq", *found) for found in _of_shapes(part)]
    for (model, fit), part in gains.groupby(["model", "fit"], sort=False) if len(gains) else ():
        said += [(model, fit, *found) for found in _of_gains(part)]
    return pd.DataFrame(
        [(model, fit, statement, cases.sum(), len(cases)) for model, fit, statement, cases in said],
        columns=["model", "fit", "the_paper_says", "holds", "of"],
    )


def _of_gains(gains: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    gains = gains[(gains["fit_text"] == "Tatoeba") & (gains["direction"] == FROM_ENGLISH)]
    for test, cells in gains[gains["test"] != "newstest"].groupby("test", sort=False):
        for measure, least in zip(MEASURES, (0, 0, 0.5, 0.5), strict=True):
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
