"""How well each language serves as a pivot on IN22: ``python -m docs.tools.atlas_hubs SCORES.parquet``.

The condensed table has means by language, not pairs, so this reads the public results. For each multilingual model, the
logit of the score of each pair of languages is fitted as ``m + q_a + c_b``, queries in a and candidates in b, by least
squares. A language's raw advantage is the mean score of its pairs less that of all others; its residual is the mean of
what the fit leaves of its pairs, in points: how much better they are than two languages of these strengths should be.
Writes docs/results/atlas_hubs.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from xalign_models.atlas.factors import logit, score_of
from xalign_models.atlas.statistics import MULTILINGUAL

OUTPUT = Path(__file__).parents[1] / "results" / "atlas_hubs.csv"
TASK, REVISIONS = "IN22GenBitextMining", ("ec38153", "aed6ff7")


def advantages(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Raw advantage and residual (languages,) in points, from scores (languages, languages), NaN on the diagonal."""
    count = len(scores)
    off = ~np.eye(count, dtype=bool)
    a, b = np.nonzero(off)
    design = np.concatenate([np.eye(count)[a], np.eye(count)[b]], axis=1)
    logits = logit(scores[off])
    fitted = design @ np.linalg.lstsq(design, logits, rcond=None)[0]
    left = 100 * (scores[off] - score_of(fitted))
    touching = (a[:, None] == np.arange(count)) | (b[:, None] == np.arange(count))
    raw = [100 * (scores[off][own].mean() - scores[off][~own].mean()) for own in touching.T]
    return np.array(raw), np.array([left[own].mean() for own in touching.T])


def main(path: Path) -> None:
    """Write a line for each text, model and language."""
    table = pd.read_parquet(path, filters=[("task", "==", TASK)])
    table = table.assign(languages=table["languages"].astype(str), model=table["model"].astype(str))
    rows = []
    for revision in REVISIONS:
        text = table[table["dataset_revision"].astype(str).str.startswith(revision)]
        for model, part in text.groupby("model"):
            part = part[part["languages"].str.count(" ") == 1].drop_duplicates("languages")
            pairs = part["languages"].str.split(" ", expand=True)
            codes = sorted({*pairs[0], *pairs[1]})
            scores = np.full((len(codes), len(codes)), np.nan)
            at = [np.searchsorted(codes, pairs[side]) for side in (0, 1)]
            scores[at[0], at[1]] = part["main_score"]
            off = ~np.eye(len(codes), dtype=bool)
            if "eng-Latn" not in codes:
                continue
            english = codes.index("eng-Latn")
            with_english = np.r_[np.delete(scores[english], english), np.delete(scores[:, english], english)]
            if np.isnan(scores[off]).any() or with_english.mean() < MULTILINGUAL:
                continue
            for code, raw, residual in zip(codes, *advantages(scores), strict=True):
                rows.append((revision, model.replace("__", "/", 1), code, f"{raw:.3f}", f"{residual:.3f}"))
    columns = ["text", "model", "language", "raw", "residual"]
    pd.DataFrame(rows, columns=columns).to_csv(OUTPUT, index=False, lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
