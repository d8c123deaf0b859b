"""Tatoeba accuracy by the number of removed directions, and by layer (the LSAR paper's Figures 7 and 6)."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.alignments import LIR
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.linalg.arrays import Float32, Float64
from xalign_models.models.catalogue import fits
from xalign_models.models.fitting import fit_languages, fit_texts, load_corpora
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study
from xalign_tasks.analyses.spaces import Space, Tatoeba

MOST_LIR = 20
"""Largest k of LIR; the paper's best values are 14 to 17."""
REMOVING = {"lsar": "LSAR: one subspace of all languages", "lir": "LIR: directions of each language"}
METHODS = {"original": "Original", "centered": "Centered", "lir-1": "LIR(k=1)", "lsar": "LSAR"}


def analyse_ranks(request: Request) -> Findings:
    """Accuracy with the first 0, 1, 2, ... directions removed, on the languages that both methods are fitted on.

    Raises:
        LanguageError: The methods are fitted on none of the languages.
        XAlignError: A model or text is unavailable.
    """
    study = Study()
    for space, tatoeba in spaces.each_space(request, study, fitted_only=True):
        model = space.backbone.name
        frame = study.add("sweep", sweep_ranks(space, tatoeba), model=model)
        study.add("summary", chosen(frame).assign(source="this run"), model=model)
        study.figures[f"accuracy-{model}"] = draw(frame, "rank", REMOVING, f"{model}: {tatoeba.title}")
    study.add("summary", spaces.published_accuracy())
    return study.findings()


def analyse_layers(request: Request) -> Findings:
    """Accuracy at every layer, before and after each unpaired alignment.

    Raises:
        LanguageError: The fit text has none of the languages, or no English.
        XAlignError: A model or text is unavailable.
    """
    study = Study()
    for name in request.named():
        backbone, alignment = spaces.lsar_spec(name)
        have = fit_languages(alignment, load_corpora(alignment))
        tatoeba, left_out = spaces.open_tatoeba(request).within(have, f"{', '.join(alignment.corpora)} have")
        limit = min(filter(None, (request.rows, alignment.limit)), default=None)
        alignment = dataclasses.replace(alignment, languages=(ENGLISH, *tatoeba.languages), limit=limit)
        frame = study.add("layers", sweep_layers(request, backbone, alignment, tatoeba), model=backbone.name)
        top = frame.loc[frame.groupby("method", sort=False)["accuracy"].idxmax()]
        best = top.assign(method=top["method"].map(METHODS), source="this run, best layer")
        study.add("summary", best[["model", "method", "layer", "accuracy", "languages", "source"]])
        study.figures[f"accuracy-{backbone.name}"] = draw(frame, "layer", METHODS, f"{backbone.name}\n{tatoeba.title}")
        size = f"{request.rows} rows" if request.rows else "all rows"
        study.notes += [
            f"{backbone.name}: {size} of each language; fitted on the same {len(tatoeba.languages) + 1} languages of "
            f"{' and '.join(alignment.corpora)}, at most {alignment.limit or 'all'} rows of each.",
            *left_out,
        ]
        study.record_corpora(alignment.corpora)
        study.data["tatoeba"] = tatoeba.corpus.fingerprint(tatoeba.languages)
    study.add("summary", spaces.published_accuracy())
    return study.findings(
        "Layer 0 is the embeddings. Fewer rows make an easier search: compare with the paper only at all rows."
    )


def sweep_ranks(space: Space, tatoeba: Tatoeba) -> pd.DataFrame:
    """Mean accuracy in percent over the languages, by method and number of removed directions."""
    largest = min(MOST_LIR, space.lsar.dim_)
    spec = dataclasses.replace(space.alignment, label=f"lir-{largest}", method="lir", params=(("k", largest),))
    lir = Recipe(ModelSpec(space.backbone, spec), space.raw).fitted
    assert isinstance(lir, LIR)
    directions = dict(zip(lir.languages_, lir.directions_, strict=True))
    common = space.lsar.basis_[:, : space.lsar.rank_]
    accuracies: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for language, *pair in space.pairs(tatoeba):
        for method, bases in (("lsar", (common, common)), ("lir", (directions[language], directions[ENGLISH]))):
            for k, sides in enumerate(zip(*map(peel, pair, bases), strict=True)):
                accuracies[method, k].append(spaces.accuracy(*sides))
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
    return pd.DataFrame({"method": label, **row[["accuracy", "languages"]]} for label, row in rows.items())


def sweep_layers(request: Request, backbone: BackboneSpec, alignment: AlignmentSpec, tatoeba: Tatoeba) -> pd.DataFrame:
    """Mean accuracy in percent over the languages, by layer and method."""
    fit = {field: getattr(alignment, field) for field in ("corpora", "limit", "languages")}
    specs = {method: dataclasses.replace(fits()[""][method], **fit) for method in ("centered", "lir-1")}
    rows = []
    for vectors in spaces.vectors_by_layer(request, backbone, _texts(alignment, tatoeba), roles=True):
        for method, spec in {"original": None, **specs, "lsar": alignment}.items():
            model = Recipe(ModelSpec(vectors.backbone, spec), vectors.raw).fitted if spec else None
            scores = []
            for language, *pair in vectors.pairs(tatoeba):
                mapped = map(model.transform, pair, (language, ENGLISH)) if model else pair
                scores.append(spaces.accuracy(*mapped))
            rows.append({"layer": vectors.backbone.layer, "method": method, **spaces.mean_accuracy(scores)})
    return pd.DataFrame(rows)


def _texts(alignment: AlignmentSpec, tatoeba: Tatoeba) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {ENGLISH: []}
    for language, side, english in tatoeba.pairs():
        texts[language] = side
        texts[ENGLISH] += english
    return {language: texts[language] + rows for language, (rows,) in fit_texts(alignment)}


def draw(frame: pd.DataFrame, x: str, methods: Mapping[str, str], title: str) -> Figure:
    """Accuracy by ``rank`` or ``layer``, a line per method."""
    label = "directions removed (k of LIR, rank r of LSAR)" if x == "rank" else "layer (0: the embeddings)"
    figure, axis = figures.plot(title, label, "accuracy in %, English query")
    parts = {label: frame[frame["method"] == method] for method, label in methods.items()}
    figures.draw_lines(axis, {label: (part[x], part["accuracy"]) for label, part in parts.items()})
    if x == "rank":
        original = frame.loc[frame["rank"] == 0, "accuracy"].iloc[0]
        axis.axhline(original, color="#555555", linewidth=1, linestyle=":", label="nothing removed")
    else:
        axis.locator_params(axis="x", integer=True)
    axis.legend()
    return figure
