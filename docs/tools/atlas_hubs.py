"""How well each language serves as a pivot on IN22: ``python -m docs.tools.atlas_hubs SCORES.parquet``.

The condensed table has means by language, not pairs, so this reads the public results. For each multilingual model, the
logit of the score of each pair of languages is fitted as ``m + q_a + c_b``, queries in a and candidates in b, by least
squares. A language's raw advantage is the mean score of its pairs less that of all others; its residual is the mean of
what the fit leaves of its pairs, in points: how much better they are than two languages of these strengths should be.
Writes docs/results/atlas_hubs.csv.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from xalign_models.atlas.factors import logit, score_of
from xalign_models.atlas.statistics import ENGLISH, MULTILINGUAL

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
    pairs = table["languages"].astype(str).str.extract(r"^(?P<query>\S+) (?P<candidate>\S+)$")
    table = table.assign(model=table["model"].astype(str), **pairs).dropna(subset=["query"])
    rows = []
    for revision in REVISIONS:
        text = table[table["dataset_revision"].astype(str).str.startswith(revision)]
        for model, part in text.groupby("model"):
            codes = sorted({*part["query"], *part["candidate"]})
            unique = part.drop_duplicates(["query", "candidate"])
            scores = unique.pivot(index="query", columns="candidate", values="main_score").reindex(codes, columns=codes)
            whole = not scores.isna().to_numpy()[~np.eye(len(codes), dtype=bool)].any()
            if not whole or ENGLISH not in codes:
                continue
            if pd.concat([scores.loc[ENGLISH], scores[ENGLISH]]).drop(ENGLISH).mean() < MULTILINGUAL:
                continue
            for code, raw, residual in zip(codes, *advantages(scores.to_numpy()), strict=True):
                rows.append((revision, model.replace("__", "/", 1), code, f"{raw:.3f}", f"{residual:.3f}"))
    columns = ["text", "model", "language", "raw", "residual"]
    pd.DataFrame(rows, columns=columns).to_csv(OUTPUT, index=False, lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
