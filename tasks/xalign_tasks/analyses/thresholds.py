"""One score threshold for all languages: the English one on raw cosines, and one on standardised cosines."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from xalign_models import Thresholds
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.linalg.arrays import Float64
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses.ready_map import sides

RATE = 0.01


def analyse(request: Request) -> Findings:
    """Recall and false positives by pair of languages on half of XQuAD-R, with thresholds from the other half.

    Raises:
        ModelError: No model was named.
        DataError: XQuAD-R is missing.
    """
    texts = sides()
    half = {code: len(side.questions) // 2 for code, side in texts.items()}
    rows: list[dict[str, Any]] = []
    for name in request.named():
        encoder = request.load(name)
        asked, stored = (encoder.prompts.get(role, "") for role in ("query", "passage"))
        questions = {code: encoder.raw.encode([*side.questions.values()], asked) for code, side in texts.items()}
        sentences = {code: encoder.raw.encode(side.candidates, stored) for code, side in texts.items()}
        answers = {code: np.array([*side.answers.values()]) for code, side in texts.items()}
        fit = {code: part[: half[code]] for code, part in questions.items()}
        fit_stored = {code: part[: answers[code][half[code]]] for code, part in sentences.items()}
        for space in ("raw", "centred"):
            centre = {code: [part.mean(axis=0) * (space == "centred") for part in (fit[code], fit_stored[code])]
                      for code in texts}  # fmt: skip
            unit = [{code: normalise(vectors - centre[code][place]) for code, vectors in part.items()}
                    for place, part in ((0, questions), (1, sentences), (0, fit), (1, fit_stored))]  # fmt: skip
            thresholds = Thresholds.fit(*unit[2:])
            rng = np.random.default_rng(1)
            x, y = (part[ENGLISH][rng.integers(len(part[ENGLISH]), size=50_000)] for part in unit[2:])
            english = np.quantile((x * y).sum(axis=1), 1 - RATE)
            for query, document in product(texts, texts):
                gold = answers[document][half[query] :]
                scores = np.asarray(unit[0][query][half[query] :] @ unit[1][document][gold].T, np.float64)
                standard = thresholds.standardise(scores, query, document)
                for way, above in (("English", scores > english), ("standardised", standard > thresholds.at(RATE))):
                    rows.append({"model": name, "vectors": space, "threshold": way, "query": query,
                                 "document": document, **rates(above, gold)})  # fmt: skip
    return Findings(
        tables={"pairs": pd.DataFrame(rows).round(2)},
        notes=(
            "In percent. The thresholds allow 1% of unrelated pairs of a question and a sentence, in English or every "
            "pair of languages. They come from the first half of the paragraphs, unlabelled; the second is scored.",
        ),
    )


def rates(above: Any, gold: Any) -> dict[str, float]:
    """Recall and false positives in percent; ``above`` (n, n) is by question and answer sentence, ``gold`` (n,)."""
    relevant = gold[:, None] == gold
    values: Float64 = np.array([above[relevant].mean(), above[~relevant].mean()])
    return dict(zip(("recall", "false positives"), (100 * values).tolist(), strict=True))
