"""How much a score depends on how text is read: prompt, truncation, precision, and texts per batch."""

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
from xalign_models.generation.journal import batched
from xalign_models.languages import canonical
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.ranking.ranks import gold_ranks
from xalign_tasks.analyses.base import embed, encoders, flores

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
"""Changed fields of the backbone; an alignment is fitted again to it."""


def analyse(request: Request) -> Findings:
    """P@1 on FLORES-200 with English, for each model as registered and under each variation."""
    texts, study = flores(request, LANGUAGES, ROWS)
    for name, (model, encoder) in zip(request.named(), encoders(request), strict=True):
        without_store = load_encoder(name, device=request.device)  # the store has vectors from larger batches
        precisions = {REGISTERED: precision(encoder, texts), SINGLE: precision(without_store, texts, batch_size=1)}
        for variation, fields in VARIATIONS.items():
            try:
                changed = load_encoder(name, device=request.device, store=request.store, **fields)
                precisions[variation] = precision(changed, texts)
            except XAlignError as error:
                study.notes.append(f"{name}, {variation}: not measured. {error}")
        study.add("changes", changes(precisions), model=model)
    table = study.tables["changes"]
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
    vectors = {
        code: np.concatenate([embed(encoder, part, code) for part in batched(side, batch_size or len(side))])
        for code, side in texts.items()
    }
    english = vectors.pop(ENGLISH)
    return pd.Series({code: 100 * float(np.mean(np.equal(gold_ranks(x, english), 1))) for code, x in vectors.items()})


def changes(precisions: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Each variation's mean, its mean change from :data:`REGISTERED`, and the change of the most affected language."""
    rows = []
    for variation, scores in precisions.items():
        by_language = scores - precisions[REGISTERED]
        most = by_language.abs().idxmax()
        change = {"change": by_language.mean(), "largest": by_language[most], "language": most}
        rows.append({"variation": variation, "P@1": scores.mean(), **change})
    return pd.DataFrame(rows)


def order(table: pd.DataFrame) -> pd.DataFrame:
    """Number of pairs of models that swap ranks under each variation, among models measured under it."""
    means = table.pivot_table(index="variation", columns="model", values="P@1", sort=False).sort_index(axis=1)
    before, rows = means.loc[REGISTERED], []
    for variation, after in means.drop(REGISTERED).iterrows():
        pairs = list(combinations(after.dropna().index, 2))
        turned = [f"{a} and {b}" for a, b in pairs if (before[a] - before[b]) * (after[a] - after[b]) < 0]
        rows.append(
            {"variation": variation, "pairs": len(pairs), "changed places": len(turned), "which": "; ".join(turned)}
        )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """A row of the figure per variation, a point per model: the change of its mean."""
    shown = table[table["variation"] != REGISTERED]
    names = list(dict.fromkeys(shown["variation"]))
    title = "What reading the text otherwise changes"
    figure, axis = figures.plot(title, "change of P@1, in points", "", height=1.5 + 0.4 * len(names))
    models = shown.groupby("model", sort=False)
    points = {str(model): (rows["change"], rows["variation"].map(names.index)) for model, rows in models}
    figures.draw_lines(axis, points, linestyle="none")
    axis.axvline(0, linestyle=":", color="grey")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.legend()
    return figure
