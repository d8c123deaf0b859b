"""Linear maps between English and each language: what they gain, and how far they are from rotations.

Vasilyev et al., 2023 (arXiv:2305.14256). Their tables were images and are lost; what their text says of them stands
beside our numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tasks.analyses import mapping_figures
from tasks.analyses.mapping_texts import Text, open_texts
from tasks.orthogonality import RIDGE, map_gains, unit
from xalign_models.alignments import dilation, orthogonality
from xalign_models.alignments.solvers import affine_distance, affine_lsq
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.errors import DataError
from xalign_models.languages import canonical, display_name
from xalign_models.published import published_table

if TYPE_CHECKING:
    from xalign_models.models.encoder import XAlignEncoder

Array = npt.NDArray[np.float64]
Fit = Callable[[Array, Array], tuple[Array, Array]]

PAIRS = 3000
"""Most pairs of a language that are used, from the top of its file."""
GAINED = tuple(canonical(code) for code in "de es fr it pt ru".split())
"""The languages of the paper's Table 1."""
FROM_ENGLISH, TO_ENGLISH = "English -> other", "other -> English"
MEASURES = ("dD", "dC", "fD", "fC")
WORST = ["ber-Latn", "epo-Latn"]
"""Whose maps the paper found furthest from rotations."""


def analyse(request: Request) -> Findings:
    """Gains of the maps of the paper's languages, and shapes of the maps of all that have enough pairs.

    Gains: both fits and both directions, on every text. Shapes: also the least-squares maps from English to every other
    language. Languages that are asked for are all studied in full.

    Raises:
        DataError: Tatoeba's pairs are missing, or too few for a map in any language.
        XAlignError: A model cannot be had.
    """
    texts, notes = open_texts()
    rows = request.rows or PAIRS
    on = pick_device(request.device)
    fits: dict[str, Fit] = {
        "lsq": partial(affine_lsq, ridge=RIDGE),
        "distance": partial(affine_distance, device=on if on.startswith("cuda") else "cpu"),
    }
    gains: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    for name in request.named():
        encoder = request.load(name)
        model, few = str(encoder.mteb_model_meta.name), set()
        for text in (one for one in texts if one.fitted_on):
            for language in _languages(encoder, text, request, rows):
                full = language in (request.languages or GAINED)
                found = study(encoder, language, text, texts, rows, fits if full else {"lsq": fits["lsq"]}, full)
                if not found[1]:
                    few.add(f"{display_name(language)} ({text.name})")
                for into, part in zip((gains, shapes), found, strict=True):
                    into += [{"model": model, **row} for row in part]
        if few:
            notes.append(f"{model}: too few pairs for its dimension, left out: {', '.join(sorted(few))}.")
    if not shapes:
        raise DataError(
            f"No language has enough of its first {rows} pairs for a map; raise --rows or choose other --languages."
        )
    tables = {"gains": pd.DataFrame(gains), "shapes": pd.DataFrame(shapes)}
    tables["directions"] = directions(tables["gains"], tables["shapes"])
    tables["published"] = published_table("linear-mapping-table-01.csv")
    notes += [
        f"The first {rows} pairs of each language; one in five is held out, by its English sentence. Unless "
        "languages are asked for, shapes are of those that have as many: fewer pairs make less of a rotation.",
        "dD: fall of the mean distance over the smaller of the two; dC: mean rise of the cosine; fD, fC: share of "
        "pairs that came closer. Unit vectors.",
        "The paper's tables are lost but for one value (published); directions holds what its text says of them.",
    ]
    return Findings(tables, mapping_figures.draw(tables), tuple(notes), {one.name: one.fingerprint for one in texts})


def _languages(encoder: XAlignEncoder, text: Text, request: Request, rows: int) -> list[str]:
    """Which languages of a text are studied: those asked for, else those that have as many pairs as are used."""
    if request.languages:
        chosen = [one for one in request.languages if one in text.languages]
    else:
        chosen = sorted(one for one in text.languages if len(text.read(one)[0]) >= rows)
    unknown = encoder.unfitted([*chosen, ENGLISH])
    return [] if ENGLISH in unknown else [one for one in chosen if one not in unknown]


def study(
    encoder: XAlignEncoder, language: str, text: Text, texts: list[Text], rows: int, fits: Mapping[str, Fit], full: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fit the maps of a language on a text and measure them.

    Args:
        encoder: Gives the vectors.
        language: Canonical code.
        text: What the maps are fitted on.
        texts: What they are tested on, if ``full``.
        rows: Most pairs of each text.
        fits: By name.
        full: Both directions, and tests; else the shape of the map from English alone.

    Returns:
        Rows of the tables of gains and of shapes; none if the pairs do not determine a map.
    """
    y, x = _embed(encoder, text.sides(language, rows)[0], language)
    if len(x) <= x.shape[1]:
        return [], []
    tests = {}
    for one in texts if full else ():
        if language in one.languages and (sides := one.sides(language, rows)[1])[0]:
            tests[one.name] = _embed(encoder, sides, language)
    gains, shapes = [], []
    for direction in (FROM_ENGLISH, TO_ENGLISH) if full else (FROM_ENGLISH,):
        source, target = (x, y) if direction == FROM_ENGLISH else (y, x)
        for fit, solve in fits.items():
            weight, shift = solve(source, target)
            key = {
                "fit_text": text.name,
                "language": language,
                "name": display_name(language),
                "direction": direction,
                "fit": fit,
                "fit_pairs": len(x),
            }
            shapes.append({**key, **shape(weight)})
            for test, (other, english) in tests.items():
                a, b = (english, other) if direction == FROM_ENGLISH else (other, english)
                measured, _ = map_gains(a, b, a @ weight + shift)
                gains.append({**key, "test": test, "test_pairs": len(a), **measured})
    return gains, shapes


def _embed(encoder: XAlignEncoder, sides: tuple[list[str], list[str]], language: str) -> tuple[Array, Array]:
    """Unit vectors (n, d) of texts of a language, and of their English counterparts."""
    other, english = (
        unit(encoder.encode_texts(texts, [code] * len(texts), progress=code))
        for texts, code in zip(sides, (language, ENGLISH), strict=True)
    )
    return other, english


def shape(weight: Array) -> dict[str, float | bool]:
    """Orthogonality (eqs. 11-16) and dilation (eqs. 17-20) of a map ``y = x W``, (d, d), by column."""
    p, alpha = orthogonality(weight), dilation(weight)
    return {
        **{f"p_{key}": value for key, value in asdict(p).items()},
        "p_exceeds_0.383": p.exceeds,
        **{f"alpha_{key}": value for key, value in asdict(alpha).items()},
    }


def directions(gains: pd.DataFrame, shapes: pd.DataFrame) -> pd.DataFrame:
    """What the paper's text says of its tables, and in how many of our cases it holds, by model and fit."""
    rows = []
    for (model, fit), part in shapes[shapes["direction"] == FROM_ENGLISH].groupby(["model", "fit"], sort=False):
        own = gains[(gains["model"] == model) & (gains["fit"] == fit)] if len(gains) else gains
        for statement, cases in [*_of_gains(own), *_of_shapes(part)]:
            rows.append(
                {"model": model, "fit": fit, "the_paper_says": statement, "holds": cases.sum(), "of": len(cases)}
            )
    return pd.DataFrame(rows, columns=["model", "fit", "the_paper_says", "holds", "of"])


def _of_gains(gains: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    if gains.empty:
        return
    gains = gains[(gains["fit_text"] == "Tatoeba") & (gains["direction"] == FROM_ENGLISH)]
    for test, cells in gains[gains["test"] != "newstest"].groupby("test", sort=False):
        for measure, least in zip(MEASURES, (0, 0, 0.5, 0.5), strict=True):
            yield f"{measure} > {least} on {test}", cells[measure] > least


def _of_shapes(shapes: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    tatoeba, news = (shapes[shapes["fit_text"] == text].set_index("language") for text in ("Tatoeba", "newstest"))
    rest = tatoeba.drop(WORST, errors="ignore")
    for language in tatoeba.index.intersection(WORST):
        for column, what in (("p_mean_abs", "mean |p|"), ("alpha_std", "sigma(alpha) / mean")):
            yield f"{display_name(language)}: {what} above others'", tatoeba.loc[language, column] > rest[column]
    both = tatoeba.index.intersection(news.index)
    if len(both):
        closer = tatoeba.loc[both, "p_mean_abs"] < news.loc[both, "p_mean_abs"]
        yield "mean |p| lower if fitted on Tatoeba than on formal text (theirs UN, ours newstest)", closer
