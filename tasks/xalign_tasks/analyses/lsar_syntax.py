"""Whether what LSAR removes is syntax: the paper's Table 5 and Figure 5."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import pearsonr, spearmanr

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.languages import display_name
from xalign_models.published import published_table
from xalign_models.typology import family, syntax
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study

PARTS = {"removed": "removed by LSAR", "kept": "kept by LSAR"}


def analyse(request: Request) -> Findings:
    """Correlation of languages' syntactic similarity to English with the cosine of their means to English's.

    The cosine is that of the removed part, and that of the kept part, of Tatoeba's raw vectors.

    Raises:
        DataError: Fewer than three languages besides English.
        XAlignError: A model, a text or URIEL is unavailable.
    """
    study = Study()
    for space, tatoeba in spaces.each_space(request, study):
        if len(tatoeba.languages) < 3:
            raise DataError("--languages: a correlation needs at least three languages besides English.")
        vectors = spaces.by_language(space, tatoeba)
        means = {language: rows.mean(axis=0, dtype=np.float64) for language, rows in vectors.items()}
        frame, model = similarities(means, space.lsar.basis_), space.backbone.name
        correlations = study.add("correlation", correlate(frame), model=model, source="this run")
        study.add("languages", frame, model=model)
        study.figures[f"similarity-{model}"] = draw(frame, correlations, model)
    study.add("correlation", published())
    return study.findings(
        "URIEL's published distances are not available: the similarity is the cosine of the 103 binary features of its "
        "set syntax_knn; pearson_angular uses 1 - 2/pi arccos of it instead.",
        "English itself is left out: both its similarities are 1.",
    )


def similarities(means: Mapping[str, npt.NDArray[np.float64]], basis: npt.NDArray[np.float64]) -> pd.DataFrame:
    """Similarity of every language to English: in syntax, and by the cosine of the removed and kept parts of its mean.

    Args:
        means: Language to the mean (d,) of its raw vectors, English among them.
        basis: C (d, r), orthonormal columns; C C^T mean is the removed part.
    """
    others = [language for language in means if language != ENGLISH]
    rows = np.stack([means[language] for language in (ENGLISH, *others)])
    removed = (rows @ basis) @ basis.T
    features = syntax([ENGLISH, *others])
    return pd.DataFrame(
        {
            "language": others,
            "name": [display_name(language) for language in others],
            "family": [family(language) for language in others],
            "syntax": _cosines(features),
            "removed": _cosines(removed),
            "kept": _cosines(rows - removed),
        }
    )


def _cosines(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Cosines of the first row with all others."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    cosines: npt.NDArray[np.float64] = unit[1:] @ unit[0]
    return cosines


def correlate(frame: pd.DataFrame) -> pd.DataFrame:
    """Pearson's and Spearman's correlation of the syntactic similarity with that of each part."""
    angular = 1 - 2 / np.pi * np.arccos(frame["syntax"].clip(-1, 1))
    rows = []
    for part in PARTS:
        pearson = pearsonr(frame["syntax"], frame[part])
        rows.append(
            {
                "part": part,
                "languages": len(frame),
                "pearson": pearson.statistic,
                "p_value": pearson.pvalue,
                "spearman": spearmanr(frame["syntax"], frame[part]).statistic,
                "pearson_angular": pearsonr(angular, frame[part]).statistic,
                "cosine_mean": frame[part].mean(),
                "cosine_std": frame[part].std(ddof=0),
            }
        )
    return pd.DataFrame(rows)


def published() -> pd.DataFrame:
    """The paper's correlations, in the same columns."""
    table = published_table("lsar-table-05.csv")
    columns = {"part": table["part"], "pearson": table["value"], "model": table["model"]}
    return pd.DataFrame({**columns, "languages": 36}).assign(source="published: LSAR paper, Table 5")


@figures.styled()
def draw(frame: pd.DataFrame, correlations: pd.DataFrame, backbone: str) -> Figure:
    """A point per language: syntactic similarity to English against the cosine of the means, removed part and kept."""
    figure, axes = figures.canvas(1, len(PARTS), width=11, height=5.2)
    for axis, (part, label), pearson in zip(axes[0], PARTS.items(), correlations["pearson"], strict=True):
        figures.draw_points(axis, frame["syntax"], frame[part])
        codes = frame["language"].str.partition("-")[0]
        figures.name_points(axis, zip(codes, frame["syntax"], frame[part], strict=True))
        slope, start = np.polyfit(frame["syntax"], frame[part], 1)
        ends = np.array([frame["syntax"].min(), frame["syntax"].max()])
        axis.plot(ends, start + slope * ends, color=figures.COLOURS[1], linewidth=1.2)
        figures.describe(
            axis,
            f"{label}: Pearson r = {pearson:.2f}",
            "syntactic similarity to English (cosine of URIEL's features)",
            f"cosine of the language means, {label.split()[0]} part",
        )
    figure.suptitle(
        f"Is it syntax that LSAR removes from {backbone}? Each point is a language (ISO 639-3)", fontsize=11
    )
    return figure
