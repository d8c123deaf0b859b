"""Choice of the layer: Tatoeba accuracy by layer, before and after each unpaired alignment (the paper's Figure 6)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.backbones import loading
from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError
from xalign_models.languages import display_name
from xalign_models.models.building import fitted, raw_encoder
from xalign_models.models.catalogue import ALIGNMENTS
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import labelled
from xalign_tasks.analyses.layers import at_every_layer, fill
from xalign_tasks.analyses.spaces import Tatoeba

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"original": "Original", "centered": "Centered", "lir-1": "LIR(k=1)", "lsar": "LSAR"}


def analyse(request: Request) -> Findings:
    """Accuracy at every layer; the vectors of all layers come from one forward pass.

    The alignments are fitted on the scored languages, with at most ``rows`` rows of each.

    Raises:
        LanguageError: The fit text has none of the languages, or no English.
        XAlignError: A model or text is unavailable.
    """
    tables, best, drawn, notes = [], [], {}, []
    data: dict[str, str] = {}
    for name in request.named():
        backbone, alignment = spaces.lsar_spec(name)
        tatoeba, alignment, left_out = _common(spaces.open_tatoeba(request), alignment, request.rows)
        frame = labelled(sweep(request, backbone, alignment, tatoeba), model=backbone.name)
        tables.append(frame)
        top = frame.loc[frame.groupby("method", sort=False)["accuracy"].idxmax()]
        best.append(
            top.assign(method=top["method"].map(METHODS), source="this run, best layer")[
                ["model", "method", "layer", "accuracy", "languages", "source"]
            ]
        )
        drawn[f"accuracy-{backbone.name}"] = draw(frame, backbone.name, tatoeba.title)
        size = f"{request.rows} rows" if request.rows else "all rows"
        notes.append(
            f"{backbone.name}: {size} of each language; fitted on the same {len(tatoeba.languages) + 1} languages of "
            f"{' and '.join(alignment.corpora)}, at most {alignment.limit or 'all'} rows of each."
        )
        if left_out:
            notes.append(f"Left out, as the fit text lacks them: {', '.join(map(display_name, left_out))}.")
        data |= tatoeba.revisions
    notes.append("Layer 0 is the embeddings. Fewer rows are an easier search: compare with the paper at all rows only.")
    summary = pd.concat([*best, spaces.published_accuracy()], ignore_index=True)
    return Findings({"summary": summary, "layers": pd.concat(tables)}, drawn, tuple(notes), data)


def _common(tatoeba: Tatoeba, alignment: AlignmentSpec, rows: int | None) -> tuple[Tatoeba, AlignmentSpec, list[str]]:
    """Test text and alignment restricted to common languages, and the test languages that are left out."""
    have = {language for name in alignment.corpora for language in corpora.load(name).languages}
    shared = tuple(code for code in tatoeba.languages if code in have)
    if not shared or ENGLISH not in have:
        raise LanguageError(f"{', '.join(alignment.corpora)} have {', '.join(sorted(have))}; choose of these.")
    limit = min(filter(None, (rows, alignment.limit)), default=None)
    narrowed = dataclasses.replace(alignment, languages=(ENGLISH, *shared), limit=limit)
    return dataclasses.replace(tatoeba, languages=shared), narrowed, sorted(set(tatoeba.languages) - set(shared))


def sweep(request: Request, backbone: BackboneSpec, alignment: AlignmentSpec, tatoeba: Tatoeba) -> pd.DataFrame:
    """Mean accuracy in percent over the languages, by layer and method."""
    device = loading.pick_device(request.device)
    prompts = loading.open_backbone(backbone).prompts
    layers = at_every_layer(backbone)
    for language, texts in _texts(alignment, tatoeba).items():
        prompt = loading.prompt_in(prompts, language)
        fill(layers, texts, prompt, device, request.store, f"{backbone.name} {language}, all layers")
    rows = []
    for layer in layers:
        raw = raw_encoder(layer, device, request.store)
        for method in METHODS:
            model = fitted(ModelSpec(layer, _like(alignment, method)), raw) if method != "original" else None
            scores = []
            for language, *sides in tatoeba.pairs():
                codes = (language, ENGLISH)
                vectors = [
                    raw.encode(side, loading.prompt_in(prompts, code)) for side, code in zip(sides, codes, strict=True)
                ]
                if model is not None:
                    vectors = [model.transform(x, code) for x, code in zip(vectors, codes, strict=True)]
                scores.append(spaces.accuracy(*vectors))
            forward, backward = np.mean(scores, axis=0)
            rows.append(
                {
                    "layer": layer.layer,
                    "method": method,
                    "accuracy": forward,
                    "accuracy_other_to_english": backward,
                    "languages": len(scores),
                }
            )
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
    for index, (method, label) in enumerate(METHODS.items()):
        part = frame[frame["method"] == method]
        axis.plot(part["layer"], part["accuracy"], label=label, **figures.look(index))
    axis.legend()
    axis.xaxis.get_major_locator().set_params(integer=True)
    figures.describe(
        axis,
        f"{backbone}\n{text}",
        "layer (0: the embeddings)",
        "accuracy in %, English query",
    )
    return figure
