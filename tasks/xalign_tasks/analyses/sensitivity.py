"""How far a score depends on how the text is read: prompt, truncation, precision, one text at a time or many."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import XAlignError
from xalign_models.languages import canonical
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.ranking.ranks import gold_ranks, normalise
from xalign_tasks.analyses.base import Study, flores

LANGUAGES = tuple(canonical(code) for code in "de es ru ar zh hi tr sw".split())
ROWS = 400
REGISTERED, SINGLE = "as registered", "one text at a time"
VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "no prompt": {"prompts": (("default", ""),)},
    "prompt 'query: '": {"prompts": (("default", "query: "),)},
    "16 tokens": {"max_tokens": 16},
    "64 tokens": {"max_tokens": 64},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"precision": "int8"},
    "binary vectors": {"vectors": "binary"},
}
"""Changed fields of the backbone; an alignment is fitted again to the changed backbone."""


def analyse(request: Request) -> Findings:
    """P@1 on FLORES-200 with English, for each model as registered and under each variation."""
    texts, data = flores(request, LANGUAGES, ROWS)
    study = Study(data)
    for name in request.named():
        encoder = request.load(name)
        without_store = load_encoder(name, device=request.device)  # the store has vectors from larger batches
        precisions = {REGISTERED: precision(encoder, texts), SINGLE: precision(without_store, texts, batch_size=1)}
        for variation, fields in VARIATIONS.items():
            try:
                changed = load_encoder(name, device=request.device, store=request.store, **fields)
                precisions[variation] = precision(changed, texts)
            except XAlignError as error:
                study.notes.append(f"{name}, {variation}: not measured. {error}")
        study.add("changes", changes(precisions), model=str(encoder.mteb_model_meta.name))
    table = pd.concat(study.tables["changes"], ignore_index=True)
    if table["model"].nunique() > 1:
        study.add("order", order(table))
    study.figures["changes"] = draw(table)
    return study.findings(
        "P@1 in %, the mean of both directions with English. `change` is the difference from the model as registered, "
        "`largest` that of the language which changes most.",
        "`order` counts the pairs of models that change places under the variation.",
    )


def precision(encoder: XAlignEncoder, texts: Mapping[str, list[str]], batch_size: int | None = None) -> pd.Series:
    """P@1 with English, in %, the mean of both directions, by language."""

    def vectors(language: str) -> np.ndarray:
        sentences = texts[language]
        step = batch_size or len(sentences)
        parts = [sentences[start : start + step] for start in range(0, len(sentences), step)]
        return normalise(np.concatenate([encoder.encode_texts(part, [language] * len(part)) for part in parts]))

    english = vectors(ENGLISH)
    scores = {
        language: 100 * float(np.mean([ranks == 1 for ranks in gold_ranks(vectors(language), english)]))
        for language in texts
        if language != ENGLISH
    }
    return pd.Series(scores)


def changes(precisions: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Each variation's mean, its mean change from :data:`REGISTERED`, and that of the language which changes most."""
    rows = []
    for variation, scores in precisions.items():
        by_language = scores - precisions[REGISTERED]
        most = by_language.abs().idxmax()
        change = {"change": by_language.mean(), "largest": by_language[most], "language": most}
        rows.append({"variation": variation, "P@1": scores.mean(), **change})
    return pd.DataFrame(rows)


def order(table: pd.DataFrame) -> pd.DataFrame:
    """Number of pairs of models that change places under each variation, among those measured under it."""
    means = table.pivot(index="variation", columns="model", values="P@1")
    rows = []
    for variation in table["variation"].unique():
        if variation == REGISTERED:
            continue
        pairs = [pair for pair in combinations(means.columns, 2) if means.loc[variation, list(pair)].notna().all()]
        before, after = (
            [np.sign(means.loc[name, a] - means.loc[name, b]) for a, b in pairs] for name in (REGISTERED, variation)
        )
        turned = [pair for pair, sign, other in zip(pairs, before, after, strict=True) if sign * other < 0]
        which = "; ".join(" and ".join(pair) for pair in turned)
        rows.append({"variation": variation, "pairs": len(pairs), "changed places": len(turned), "which": which})
    return pd.DataFrame(rows)


@figures.styled()
def draw(table: pd.DataFrame) -> Figure:
    """A row of the figure per variation, a point per model: the change of its mean."""
    shown = table[table["variation"] != REGISTERED]
    names = list(dict.fromkeys(shown["variation"]))
    figure, ((axis,),) = figures.canvas(height=1.5 + 0.4 * len(names))
    points = {
        str(model): (rows["change"], [names.index(name) for name in rows["variation"]])
        for model, rows in shown.groupby("model", sort=False)
    }
    figures.draw_lines(axis, points, linestyle="none")
    axis.axvline(0, linestyle=":", color="grey")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.legend()
    figures.describe(axis, "What reading the text otherwise changes", "change of P@1, in points", "")
    return figure
