"""Choice of the layer: Tatoeba accuracy by layer, before and after each unpaired alignment (the paper's Figure 6)."""

from __future__ import annotations

import dataclasses

import pandas as pd
from matplotlib.figure import Figure

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.models.catalogue import ALIGNMENTS
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study, labelled
from xalign_tasks.analyses.layers import vectors_by_layer
from xalign_tasks.analyses.spaces import Tatoeba

METHODS = {"original": "Original", "centered": "Centered", "lir-1": "LIR(k=1)", "lsar": "LSAR"}


def analyse(request: Request) -> Findings:
    """Accuracy at every layer; the vectors of all layers come from one forward pass.

    The alignments are fitted on the scored languages, with at most ``rows`` rows of each.

    Raises:
        LanguageError: The fit text has none of the languages, or no English.
        XAlignError: A model or text is unavailable.
    """
    study = Study()
    for name in request.named():
        backbone, alignment = spaces.lsar_spec(name)
        have = {language for corpus in alignment.corpora for language in corpora.load(corpus).languages}
        tatoeba, left_out = spaces.open_tatoeba(request).within(have, f"{', '.join(alignment.corpora)} have")
        limit = min(filter(None, (request.rows, alignment.limit)), default=None)
        alignment = dataclasses.replace(alignment, languages=(ENGLISH, *tatoeba.languages), limit=limit)
        frame = labelled(sweep(request, backbone, alignment, tatoeba), model=backbone.name)
        top = frame.loc[frame.groupby("method", sort=False)["accuracy"].idxmax()]
        best = top.assign(method=top["method"].map(METHODS), source="this run, best layer")
        study.add("summary", best[["model", "method", "layer", "accuracy", "languages", "source"]])
        study.add("layers", frame)
        study.figures[f"accuracy-{backbone.name}"] = draw(frame, backbone.name, tatoeba.title)
        size = f"{request.rows} rows" if request.rows else "all rows"
        study.notes += [
            f"{backbone.name}: {size} of each language; fitted on the same {len(tatoeba.languages) + 1} languages of "
            f"{' and '.join(alignment.corpora)}, at most {alignment.limit or 'all'} rows of each.",
            *left_out,
        ]
        study.data |= tatoeba.revisions
    study.add("summary", spaces.published_accuracy())
    return study.findings(
        "Layer 0 is the embeddings. Fewer rows make an easier search: compare with the paper only at all rows."
    )


def sweep(request: Request, backbone: BackboneSpec, alignment: AlignmentSpec, tatoeba: Tatoeba) -> pd.DataFrame:
    """Mean accuracy in percent over the languages, by layer and method."""
    rows = []
    for vectors in vectors_by_layer(request, backbone, _texts(alignment, tatoeba)):
        for method in METHODS:
            spec = ModelSpec(vectors.backbone, _like(alignment, method)) if method != "original" else None
            model = Recipe(spec, vectors.raw).fitted if spec else None
            scores = []
            for language, *sides in tatoeba.pairs():
                codes = (language, ENGLISH)
                pair = [vectors.embed(side, code) for side, code in zip(sides, codes, strict=True)]
                if model is not None:
                    pair = [model.transform(x, code) for x, code in zip(pair, codes, strict=True)]
                scores.append(spaces.accuracy(*pair))
            rows.append({"layer": vectors.backbone.layer, "method": method, **spaces.mean_accuracy(scores)})
    return pd.DataFrame(rows)


def _texts(alignment: AlignmentSpec, tatoeba: Tatoeba) -> dict[str, list[str]]:
    """All texts to encode, for scoring and for fitting, by language."""
    texts: dict[str, list[str]] = {ENGLISH: []}
    for language, side, english in tatoeba.pairs():
        texts[language] = side
        texts[ENGLISH] += english
    for name in alignment.corpora:
        corpus = corpora.load(name)
        for language in set(texts) & set(corpus.languages):
            texts[language] = texts[language] + corpus.texts(language)[: alignment.limit]
    return texts


def _like(lsar: AlignmentSpec, label: str) -> AlignmentSpec:
    """The alignment of a label, fitted on the text of ``lsar``."""
    fields = {field: getattr(lsar, field) for field in ("corpora", "limit", "languages")}
    return dataclasses.replace(ALIGNMENTS[""][label], **fields)


@figures.styled()
def draw(frame: pd.DataFrame, backbone: str, text: str) -> Figure:
    """Accuracy by layer, a line per method."""
    figure, ((axis,),) = figures.canvas()
    parts = {label: frame[frame["method"] == method] for method, label in METHODS.items()}
    figures.draw_lines(axis, {label: (part["layer"], part["accuracy"]) for label, part in parts.items()})
    axis.legend()
    axis.xaxis.get_major_locator().set_params(integer=True)
    figures.describe(axis, f"{backbone}\n{text}", "layer (0: the embeddings)", "accuracy in %, English query")
    return figure
