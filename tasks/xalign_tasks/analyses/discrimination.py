"""Whether a sentence is closer to its translation than to a form with a changed number, name, negation or order."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.ranking.ranks import TIE
from xalign_tasks.analyses.base import LANGUAGES, embed, encoders, flores, slug
from xalign_tasks.perturbations import KINDS, perturbed

ROWS = 400
ALL = "all"


def analyse(request: Request) -> Findings:
    """Share of FLORES-200 sentences whose true translation beats a changed one, by language and kind of change."""
    texts, study = flores(request, LANGUAGES, ROWS)
    for model, encoder in encoders(request):
        frame = study.add("accuracy", discriminated(encoder, texts), model=model)
        study.figures[slug(model)] = draw(frame, model)
    counts = ", ".join(f"{kind} {sum(form is not None for form in perturbed(texts[ENGLISH], kind))}" for kind in KINDS)
    return study.findings(
        f"Of {len(texts[ENGLISH])} sentences of FLORES-200's devtest could be changed: {counts}.",
        "A tie counts against the model; the chance of each kind is 0.5.",
        "'all' requires that the translation beats every changed form; its chance is lower and not drawn.",
    )


def discriminated(encoder: XAlignEncoder, texts: dict[str, list[str]]) -> pd.DataFrame:
    """Share of sentences whose translation has a higher cosine than its changed English form, by language and kind."""
    true, changed = embed(encoder, texts[ENGLISH], ENGLISH), {}
    for kind in KINDS:
        forms = {row: form for row, form in enumerate(perturbed(texts[ENGLISH], kind)) if form is not None}
        rows = np.array([*forms], dtype=np.int64)
        changed[kind] = rows, embed(encoder, [*forms.values()], ENGLISH) if forms else true[:0]
    table = []
    tested = np.unique(np.concatenate([rows for rows, _ in changed.values()]))
    for language in (code for code in texts if code != ENGLISH):
        side = embed(encoder, texts[language], language)
        gold = np.einsum("ij,ij->i", side, true)
        everywhere = np.ones(len(side), dtype=bool)
        for kind, (rows, changed_vectors) in changed.items():
            beaten = np.einsum("ij,ij->i", side[rows], changed_vectors) < gold[rows] - TIE
            everywhere[rows] &= beaten
            if len(rows):
                table.append((language, kind, beaten.mean(), len(rows)))
        table.append((language, ALL, everywhere[tested].mean(), len(tested)))
    return pd.DataFrame(table, columns=["language", "change", "accuracy", "sentences"])


def draw(frame: pd.DataFrame, model: str) -> Figure:
    """The mean over languages, a bar per kind of change."""
    title = f"{model.removeprefix('xalign/')}: translation or changed form"
    figure, axis = figures.plot(title, "what is changed", "share of translations preferred")
    means = frame.groupby("change", sort=False)["accuracy"].mean()
    axis.bar(means.index, means)
    chance = [-0.5, len(means) - 1.5]  # up to the last bar, 'all', whose chance differs
    axis.plot(chance, [0.5, 0.5], linestyle=":", color="black", label="chance")
    figure.legend(loc="outside lower center")
    return figure
