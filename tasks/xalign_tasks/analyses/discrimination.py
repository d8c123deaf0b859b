"""Whether a sentence is nearer to its translation than to a form with another number, name, negation or order."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.ranking.ranks import TIE, normalise
from xalign_tasks.analyses.base import LANGUAGES, Study, flores
from xalign_tasks.perturbations import KINDS, perturbed

ROWS = 400
ALL = "all"


def analyse(request: Request) -> Findings:
    """Share of FLORES-200 sentences whose true translation beats a changed one, by language and kind of change."""
    texts, data = flores(request, LANGUAGES, ROWS)
    study = Study(data)
    for name in request.named():
        encoder = request.load(name)
        model = str(encoder.mteb_model_meta.name)
        frame = study.add("accuracy", discriminated(encoder, texts), model=model)
        study.figures[model.removeprefix("xalign/").replace("/", "__")] = draw(frame, model)
    changed = {kind: sum(text is not None for text in perturbed(texts[ENGLISH], kind)) for kind in KINDS}
    counts = ", ".join(f"{kind} {count}" for kind, count in changed.items())
    return study.findings(
        f"Of {len(texts[ENGLISH])} sentences of FLORES-200's devtest could be changed: {counts}.",
        "A tie counts against the model; chance is 0.5. 'all' requires that the translation beats every changed form.",
    )


def discriminated(encoder: XAlignEncoder, texts: dict[str, list[str]]) -> pd.DataFrame:
    """Share of sentences whose translation has a higher cosine than its changed English form, by language and kind."""
    english = texts[ENGLISH]

    def vectors(rows: list[str], language: str) -> np.ndarray:
        return normalise(encoder.encode_texts(rows, [language] * len(rows)))

    true = vectors(english, ENGLISH)
    changed = {}
    for kind in KINDS:
        forms = perturbed(english, kind)
        rows = np.array([i for i, form in enumerate(forms) if form is not None], dtype=np.int64)
        changed[kind] = rows, vectors([form for form in forms if form is not None], ENGLISH) if len(rows) else true[:0]
    table = []
    tested = np.unique(np.concatenate([rows for rows, _ in changed.values()]))
    for language in (code for code in texts if code != ENGLISH):
        side = vectors(texts[language], language)
        gold = np.einsum("ij,ij->i", side, true)
        everywhere = np.ones(len(side), dtype=bool)
        for kind, (rows, changed_vectors) in changed.items():
            beaten = np.einsum("ij,ij->i", side[rows], changed_vectors) < gold[rows] - TIE
            everywhere[rows] &= beaten
            if len(rows):
                table.append((language, kind, beaten.mean(), len(rows)))
        table.append((language, ALL, everywhere[tested].mean(), len(tested)))
    return pd.DataFrame(table, columns=["language", "change", "accuracy", "sentences"])


@figures.styled()
def draw(frame: pd.DataFrame, model: str) -> Figure:
    """The mean over languages, a bar per kind of change."""
    figure, ((axis,),) = figures.canvas()
    means = frame.groupby("change", sort=False)["accuracy"].mean()
    axis.bar(means.index, means)
    axis.axhline(0.5, linestyle=":", color="grey")
    figures.describe(
        axis, f"{model}: translation or changed form", "what is changed", "share of translations preferred"
    )
    return figure
