"""One score threshold for all languages: the English one on raw cosines, and one on standardised cosines."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from mteb.types import PromptType

from xalign_models import Thresholds
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, LanguageError
from xalign_models.linalg.arrays import Float64
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses.base import Study, encode_side, encoders
from xalign_tasks.analyses.front import narrowed
from xalign_tasks.analyses.ready_map import sides
from xalign_tasks.lareqa import XQuADR

RATE = 0.01


def analyse(request: Request) -> Findings:
    """Recall and false positives by pair of languages on half of XQuAD-R, with thresholds from the other half.

    Raises:
        ModelError: No model was named.
        DataError: XQuAD-R is missing, or there are too few rows.
        LanguageError: XQuAD-R lacks a language.
    """
    every, study = sides(), Study()
    if missing := {*(request.languages or ())} - {*every}:
        raise LanguageError(f"XQuAD-R has no {', '.join(sorted(missing))}; it has {', '.join(every)}.")
    chosen = {ENGLISH, *(request.languages or every)}
    texts = {code: narrowed(side, request.rows) if request.rows else side for code, side in every.items()
             if code in chosen}  # fmt: skip
    half = {code: len(side.questions) // 2 for code, side in texts.items()}
    if min(half.values()) < 2:
        raise DataError("--rows: at least 4 are needed, one half for the thresholds and one to score.")
    study.record_task("XQuAD-R")
    answers = {code: np.array([*side.answers.values()]) for code, side in texts.items()}
    of_sides = {
        PromptType.query: {code: [*side.questions.values()] for code, side in texts.items()},
        PromptType.document: {code: side.candidates for code, side in texts.items()},
    }
    for name, encoder in encoders(request):
        questions, sentences = (
            {code: encode_side(encoder, rows, [code] * len(rows), XQuADR.metadata, kind) for code, rows in part.items()}
            for kind, part in of_sides.items()
        )
        ends = (half, {code: answers[code][half[code]] for code in texts})
        for space in ("raw", "centred"):
            whole, fit = [], []
            for part, end in zip((questions, sentences), ends, strict=True):
                centre = {code: rows[: end[code]].mean(axis=0) * (space == "centred") for code, rows in part.items()}
                whole.append({code: normalise(rows - centre[code]) for code, rows in part.items()})
                fit.append({code: rows[: end[code]] for code, rows in whole[-1].items()})
            thresholds = Thresholds.fit(*fit)
            rng = np.random.default_rng(1)
            x, y = (part[ENGLISH][rng.integers(len(part[ENGLISH]), size=50_000)] for part in fit)
            english = np.quantile((x * y).sum(axis=1), 1 - RATE)
            rows = []
            for query, document in product(texts, texts):
                gold = answers[document][half[query] :]
                scores = np.asarray(whole[0][query][half[query] :] @ whole[1][document][gold].T, np.float64)
                standard = thresholds.standardise(scores, query, document)
                for way, above in (("English", scores > english), ("standardised", standard > thresholds.at(RATE))):
                    rows.append({"threshold": way, "query": query, "document": document, **rates(above, gold)})
            study.add("pairs", pd.DataFrame(rows).round(2), model=name, vectors=space)
    return study.findings(
        "In percent. The thresholds allow 1% of unrelated pairs of a question and a sentence, in English or every "
        "pair of languages. They come from the first half of the paragraphs, unlabelled; the second is scored."
    )


def rates(above: Any, gold: Any) -> dict[str, float]:
    """Recall and false positives in percent; ``above`` (n, n) is by question and answer sentence, ``gold`` (n,)."""
    relevant = gold[:, None] == gold
    values: Float64 = np.array([above[relevant].mean(), above[~relevant].mean()])
    return dict(zip(("recall", "false positives"), (100 * values).tolist(), strict=True))
