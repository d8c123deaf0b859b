"""How close each language is to English by layer: MEXA, P@1, linear CKA, RSA, on FLORES-200."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.linalg.arrays import AnyFloats, Float32, unit
from xalign_models.models.names import find_spec
from xalign_models.ranking.neighbours import NAMES, measured_ranks
from xalign_models.ranking.ranks import normalise
from xalign_models.specs import BackboneSpec
from xalign_tasks.analyses.base import LANGUAGES, flores
from xalign_tasks.analyses.spaces import vectors_by_layer


def linear_cka(x: AnyFloats, y: AnyFloats) -> float:
    """Linear centred kernel alignment, ||Xc^T Yc||^2 / (||Xc^T Xc|| ||Yc^T Yc||) (Kornblith et al., 2019), in [0, 1].

    It is 1 if row-aligned embeddings (n, d) and (n, m) are equal up to rotation and scale, and 0 if one is constant.
    """
    x, y = x - x.mean(axis=0, dtype=np.float64), y - y.mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.square(x.T @ y).sum() / lengths) if lengths else 0.0


def rsa(x: AnyFloats, y: AnyFloats) -> float:
    """Representational similarity of row-aligned embeddings (n, d) and (n, m), n >= 3.

    It is Spearman's correlation of the cosines within x and within y, over pairs of rows; 0 if one is constant.
    """
    upper = np.triu_indices(len(x), 1)
    a, b = ((rows @ rows.T)[upper] for rows in (unit(x), unit(y)))
    return float(spearmanr(a, b).statistic) if np.ptp(a) and np.ptp(b) else 0.0


ROWS = 400
MEASURES = {
    "mexa": "MEXA",
    "precision_at_1": "P@1",
    "csls_precision_at_1": "P@1 by CSLS",
    "cka": "linear CKA",
    "rsa": "RSA",
}
"""Columns and their names in figures; all values are at most 1."""


def analyse(request: Request) -> Findings:
    """The measures of every language with English at every layer, and MEXA pooled over layers by mean and by maximum.

    Raises:
        LanguageError: No language besides English.
        DataError: There are fewer than three rows.
        XAlignError: A model or the text is unavailable.
    """
    texts, study = flores(request, LANGUAGES, ROWS)
    if len(texts[ENGLISH]) < 3:
        raise DataError("--rows: give at least 3, because RSA correlates the cosines of pairs of rows.")
    for name in request.named():
        backbone = find_spec(name).backbone
        frame = study.add("layers", sweep(request, backbone, texts), model=backbone.name)
        means = frame.groupby("layer", sort=False)[list(MEASURES)].mean().reset_index()
        study.add("means", means, model=backbone.name)
        mexa = frame.groupby("language", sort=False)["mexa"]
        pooled = mexa.agg(mexa_mean_over_layers="mean", mexa_max_over_layers="max").reset_index()
        study.add("mexa", pooled, model=backbone.name)
        study.figures[backbone.name] = draw(means, backbone.name)
    return study.findings(
        f"{len(texts[ENGLISH])} sentences of FLORES-200's devtest, each language with English; layer 0 is the "
        "embeddings. MEXA and P@1 are of a search among so many sentences: fewer are easier."
    )


def sweep(request: Request, backbone: BackboneSpec, texts: dict[str, list[str]]) -> pd.DataFrame:
    """The measures by layer and language; the vectors of all layers come from one forward pass."""
    rows = []
    for vectors in vectors_by_layer(request, backbone, texts):
        sides = {code: vectors.embed(sentences, code) for code, sentences in texts.items()}
        rows += [
            {"layer": vectors.backbone.layer, "language": language, **compared(side, sides[ENGLISH])}
            for language, side in sorted(sides.items())
            if language != ENGLISH
        ]
    return pd.DataFrame(rows)


def compared(x: Float32, y: Float32) -> dict[str, float]:
    """:data:`MEASURES` of row-aligned vectors (n, d); directional ones are the mean of both directions."""
    forward, backward, measures = measured_ranks(normalise(x), normalise(y))
    means = dict(zip(NAMES, measures.mean(axis=0), strict=True))
    means |= {
        "precision_at_1": float(np.mean([forward == 1, backward == 1])),
        "cka": linear_cka(x, y),
        "rsa": rsa(x, y),
    }
    return {measure: means[measure] for measure in MEASURES}


def draw(means: pd.DataFrame, model: str) -> Figure:
    """The means over languages by layer, a line per measure."""
    figure, axis = figures.plot(f"{model}: nearness to English", "layer (0: the embeddings)", "mean over languages")
    figures.draw_lines(axis, {label: (means["layer"], means[measure]) for measure, label in MEASURES.items()})
    figure.legend(loc="outside right center")  # lines may run anywhere
    axis.locator_params(axis="x", integer=True)
    return figure
