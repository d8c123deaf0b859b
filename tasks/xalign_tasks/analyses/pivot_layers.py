"""How near each language is to English by layer: MEXA, P@1, linear CKA, RSA, on FLORES-200."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.backbones import loading
from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError
from xalign_models.languages import canonical
from xalign_models.models.building import raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.ranking.neighbours import NAMES, measured_ranks
from xalign_models.ranking.ranks import normalise
from xalign_models.ranking.similarity import linear_cka, rsa
from xalign_tasks.analyses.layers import at_every_layer, fill

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.figure import Figure

    from xalign_models.specs import BackboneSpec

LANGUAGES = tuple(canonical(code) for code in "de fr es ru ar zh ja hi tr vi sw te".split())
ROWS = 400
MEASURES = {
    "mexa": "MEXA",
    "precision_at_1": "P@1",
    "csls_precision_at_1": "P@1 by CSLS",
    "cka": "linear CKA",
    "rsa": "RSA",
}
"""Columns and what figures call them; all are at most 1."""


def analyse(request: Request) -> Findings:
    """The measures of every language with English at every layer, and MEXA pooled over layers by mean and by maximum.

    Raises:
        LanguageError: No language besides English.
        XAlignError: A model or the text is unavailable.
    """
    languages = tuple(code for code in request.languages or LANGUAGES if code != ENGLISH)
    if not languages:
        raise LanguageError("--languages: name at least one besides English, the pivot.")
    corpus = corpora.load("flores")
    texts = {code: rows[: request.rows or ROWS] for code, rows in corpus.parallel((ENGLISH, *languages)).items()}
    frames = []
    for name in request.named():
        backbone = find_spec(name).backbone
        frames.append(sweep(request, backbone, texts).assign(model=backbone.name))
    frame = pd.concat(frames, ignore_index=True)[["model", "layer", "language", *MEASURES]]
    by_language = frame.groupby(["model", "language"], sort=False)["mexa"].agg(["mean", "max"]).reset_index()
    pooled = by_language.rename(columns={"mean": "mexa_mean_over_layers", "max": "mexa_max_over_layers"})
    means = frame.groupby(["model", "layer"], sort=False)[list(MEASURES)].mean().reset_index()
    return Findings(
        {"layers": frame, "means": means, "mexa": pooled},
        {model: draw(part, str(model)) for model, part in means.groupby("model")},
        (
            f"{len(texts[ENGLISH])} sentences of FLORES-200's devtest, each language with English; layer 0 is the "
            "embeddings. MEXA and P@1 are of a search among so many sentences: fewer are easier.",
        ),
        {"flores": corpus.fingerprint((ENGLISH, *languages))},
    )


def sweep(request: Request, backbone: BackboneSpec, texts: dict[str, list[str]]) -> pd.DataFrame:
    """The measures by layer and language; the vectors of all layers come from one forward pass."""
    device, prompts = loading.pick_device(request.device), loading.open_backbone(backbone).prompts
    layers = at_every_layer(backbone)
    for language, rows in texts.items():
        prompt = loading.prompt_in(prompts, language)
        fill(layers, rows, prompt, device, request.store, f"{backbone.name} {language}, all layers")
    rows_out = []
    for layer in layers:
        raw = raw_encoder(layer, device, request.store)
        vectors = {code: raw.encode(rows, loading.prompt_in(prompts, code)) for code, rows in texts.items()}
        rows_out += [
            {"layer": layer.layer, "language": language, **compared(rows, vectors[ENGLISH])}
            for language, rows in sorted(vectors.items())
            if language != ENGLISH
        ]
    return pd.DataFrame(rows_out)


def compared(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> dict[str, float]:
    """:data:`MEASURES` of row-aligned vectors (n, d); of the directional ones, the mean of both directions."""
    forward, backward, measures = measured_ranks(normalise(x), normalise(y))
    means = dict(zip(NAMES, measures.mean(axis=0), strict=True))
    return {
        "mexa": means["mexa"],
        "precision_at_1": float(np.mean([forward == 1, backward == 1])),
        "csls_precision_at_1": means["csls_precision_at_1"],
        "cka": linear_cka(x, y),
        "rsa": rsa(x, y),
    }


@figures.styled()
def draw(means: pd.DataFrame, model: str) -> Figure:
    """The means over languages by layer, a line per measure."""
    figure, ((axis,),) = figures.canvas()
    for index, (measure, label) in enumerate(MEASURES.items()):
        axis.plot(means["layer"], means[measure], label=label, **figures.look(index))
    figure.legend(loc="outside right center")  # lines may run anywhere
    axis.xaxis.get_major_locator().set_params(integer=True)
    figures.describe(axis, f"{model}: nearness to English", "layer (0: the embeddings)", "mean over languages")
    return figure
