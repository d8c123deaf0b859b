"""One score threshold for all languages: the English one on raw cosines, and one on standardised cosines."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from xalign_models import Thresholds, corpora
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.linalg.arrays import Float64
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses.ready_map import sides

RATE = 0.01


def analyse(request: Request) -> Findings:
    """Recall and false positives of XQuAD-R's answers by pair of languages, with thresholds from NTREX's sentences.

    Raises:
        ModelError: No model was named.
        DataError: XQuAD-R or NTREX is missing.
    """
    texts, ntrex = sides(), corpora.load("ntrex")
    rows: list[dict[str, Any]] = []
    gold = {code: np.array([*side.answers.values()]) for code, side in texts.items()}
    for name in request.named():
        encoder = request.load(name)
        if len(encoder.tail) > 1:
            raise DataError(f"{name} is aligned; name a backbone, as its centring is measured too.")
        asked, stored = (encoder.prompts.get(role, "") for role in ("query", "passage"))
        fit = {role: {code: encoder.raw.encode(ntrex.texts(code)[: request.rows or 1000], prompt, f"fit {code}")
                      for code in texts} for role, prompt in (("query", asked), ("passage", stored))}  # fmt: skip
        questions = {code: encoder.raw.encode(list(side.questions.values()), asked) for code, side in texts.items()}
        answers = {code: encoder.raw.encode([side.candidates[row] for row in side.answers.values()], stored)
                   for code, side in texts.items()}  # fmt: skip
        for space in ("raw", "centred"):
            q, d, fit_q, fit_d = (
                {code: normalise(part - (means[code].mean(axis=0) if space == "centred" else 0))
                 for code, part in vectors.items()}
                for vectors, means in ((questions, fit["query"]), (answers, fit["passage"]),
                                       (fit["query"], fit["query"]), (fit["passage"], fit["passage"]))
            )  # fmt: skip
            thresholds = Thresholds.fit(fit_q, fit_d)
            median, spread = thresholds.pairs[ENGLISH][ENGLISH]
            english = median + spread * thresholds.at(RATE)
            for query, document in product(texts, texts):
                scores = np.asarray(q[query] @ d[document].T, np.float64)
                standard = thresholds.standardise(scores, query, document)
                for way, above in (("English", scores > english), ("standardised", standard > thresholds.at(RATE))):
                    rows.append({"model": name, "vectors": space, "threshold": way, "query": query,
                                 "document": document, **rates(above, gold[document])})  # fmt: skip
    return Findings(
        tables={"pairs": pd.DataFrame(rows).round(2)},
        notes=("In percent. The threshold allows 1% of NTREX's unrelated pairs of texts, in English or on average.",),
    )


def rates(above: Any, gold: Any) -> dict[str, float]:
    """Recall and false positives in percent; ``above`` (n, n) is by question and answer sentence, ``gold`` (n,)."""
    relevant = gold[:, None] == gold
    values: Float64 = np.array([above[relevant].mean(), above[~relevant].mean()])
    return dict(zip(("recall", "false positives"), (100 * values).tolist(), strict=True))
