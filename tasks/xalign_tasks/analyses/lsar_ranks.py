"""Number of directions to remove: Tatoeba accuracy by the rank of LSAR and the k of LIR (the paper's Figure 7)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.alignments import LIR
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.linalg.arrays import Float32, Float64
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study, labelled
from xalign_tasks.analyses.spaces import Space, Tatoeba

MOST_LIR = 20
"""Largest k of LIR; the paper's best are 14 to 17."""
NAMES = {"lsar": "LSAR: one subspace of all languages", "lir": "LIR: directions of each language"}


def analyse(request: Request) -> Findings:
    """Accuracy with the first 0, 1, 2, ... directions removed, on the languages that both methods are fitted on.

    Raises:
        LanguageError: The methods are fitted on none of the languages.
        XAlignError: A model or text is unavailable.
    """
    study = Study()
    for space, tatoeba in spaces.each_space(request, study, fitted_only=True):
        model = space.backbone.name
        frame = labelled(sweep(space, tatoeba), model=model)
        study.add("summary", chosen(frame))
        study.add("sweep", frame)
        study.figures[f"accuracy-{model}"] = draw(frame, model, tatoeba.title)
    study.add("summary", spaces.published_accuracy())
    return study.findings()


def sweep(space: Space, tatoeba: Tatoeba) -> pd.DataFrame:
    """Mean accuracy in percent over the languages, by method and number of removed directions."""
    rank = space.lsar.rank_
    largest = min(MOST_LIR, space.lsar.dim_)
    spec = AlignmentSpec(f"lir-{largest}", "lir", (("k", largest),), space.alignment.corpora, space.alignment.limit)
    lir = Recipe(ModelSpec(space.backbone, spec), space.raw).fitted
    assert isinstance(lir, LIR)
    directions = dict(zip(lir.languages_, lir.directions_, strict=True))
    accuracies: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for language, texts, translations in tatoeba.pairs():
        side, english = space.embed(texts, language), space.embed(translations, ENGLISH)
        bases = {"lsar": (space.lsar.basis_[:, :rank],) * 2, "lir": (directions[language], directions[ENGLISH])}
        for method, (basis, english_basis) in bases.items():
            steps = zip(peel(side, basis), peel(english, english_basis), strict=True)
            for k, (a, b) in enumerate(steps):
                accuracies.setdefault((method, k), []).append(spaces.accuracy(a, b))
    return pd.DataFrame(
        {"method": method, "rank": k, **spaces.mean_accuracy(scores)} for (method, k), scores in accuracies.items()
    )


def peel(x: Float32, basis: Float64) -> Iterator[Float32]:
    """Rows (n, d) with the first 0, 1, ..., k columns of an orthonormal ``basis`` (d, k) projected away."""
    remaining = x.astype(np.float64)
    coordinates = remaining @ basis
    yield remaining.astype(np.float32)
    for component, direction in zip(coordinates.T, basis.T, strict=True):
        remaining -= np.outer(component, direction)
        yield remaining.astype(np.float32)


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the paper: nothing removed, LIR(1), LIR(15) and the best LIR, LSAR at full rank and the best LSAR."""
    lsar, lir = (frame[frame["method"] == method].set_index("rank") for method in ("lsar", "lir"))
    rows = {"Original": lsar.loc[0]}
    rows |= {f"LIR(k={k})": lir.loc[k] for k in (1, 15) if k in lir.index}
    rows[f"LIR(k={lir['accuracy'].idxmax()}), its best"] = lir.loc[lir["accuracy"].idxmax()]
    rows[f"LSAR(r={lsar['accuracy'].idxmax()}), its best"] = lsar.loc[lsar["accuracy"].idxmax()]
    rows["LSAR"] = lsar.loc[lsar.index.max()]
    return pd.DataFrame([
        {"model": row["model"], "method": label, "accuracy": row["accuracy"], "languages": row["languages"],
         "source": "this run"}
        for label, row in rows.items()
    ])  # fmt: skip


@figures.styled()
def draw(frame: pd.DataFrame, backbone: str, text: str) -> Figure:
    """Accuracy by the number of removed directions, a line per method."""
    figure, ((axis,),) = figures.canvas()
    parts = {label: frame[frame["method"] == method] for method, label in NAMES.items()}
    figures.draw_lines(axis, {label: (part["rank"], part["accuracy"]) for label, part in parts.items()})
    original = frame.loc[frame["rank"] == 0, "accuracy"].iloc[0]
    axis.axhline(original, color="#555555", linewidth=1, linestyle=":", label="nothing removed")
    axis.legend()
    figures.describe(
        axis,
        f"{backbone}: {text}",
        "directions removed (k of LIR, rank r of LSAR)",
        "accuracy in %, English query",
    )
    return figure
