"""Tests ``xalign choose`` on tasks that it has not seen: ``python -m docs.tools.choose_holdout``.

Each task is left out once, together with the tasks of the same text. A choice succeeds if the task's best model is tied
with the first choice, among the models that have a score there. Prints a line for each task and the share of successes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from xalign_models.atlas import Atlas, load_atlas
from xalign_models.atlas.choose import Wish, choose, task_scores
from xalign_models.errors import XAlignError
from xalign_models.languages import canonical

SETS = (
    "sw,te,yo", "de,fr,es", "hi,bn,ta", "zh,ja,ko", "ar,fa,ur", "ru,uk,pl", "fi,et,hu", "id,ms,tl", "vi,th,km",
    "am,so,om", "ha,ig,yo", "zu,xh,sn", "ka,hy,az", "kk,ky,uz", "is,da,nb", "cy,ga,eu", "ro,el,bg", "he,tr,ar",
    "gu,pa,mr", "sw",
)  # fmt: skip
SAME_TEXT = (
    {"STS22", "STS22.v2"},
    {"BUCC", "BUCC.v2"},
    {"IN22ConvBitextMining", "IN22GenBitextMining"},
    {"SIB200ClusteringS2S", "SIB200Classification"},
)
FEWEST = 10


def held_out(atlas: Atlas, *, by_kind: bool) -> Iterator[dict[str, Any]]:
    """The outcome for each set of languages and each task with at least half of them.

    Args:
        atlas: The table.
        by_kind: Whether the choice is asked for the kind of the task.

    Yields:
        The ``languages`` and the held-out ``task``; the number of ``candidates``, which have a score there, and of
        those ``tied`` with the first choice; ``success``, whether the best candidate is among these; ``points_lost``
        by the first choice to the best; and ``better_share``, the share of candidates with a higher score.
    """
    for codes in SETS:
        languages = tuple(canonical(code) for code in codes.split(","))
        done: set[str] = set()
        for task in dict.fromkeys(column.task for column in atlas.columns):
            group = next((tasks for tasks in SAME_TEXT if task in tasks), {task})
            if task in done:
                continue
            done |= group
            scored = [
                (column, scores)
                for column in atlas.columns
                if column.task in group
                and 2 * len({*languages} & {*column.languages}) >= len(languages)
                and (scores := task_scores(column, languages)) is not None
            ]
            if not scored:
                continue
            column, scores = max(scored, key=lambda pair: np.isfinite(pair[1]).sum())
            truth = {
                model: score for model, score in zip(column.models, scores.tolist(), strict=True) if score == score
            }
            try:
                choice = choose(atlas, Wish(languages, column.kind if by_kind else None), without=sorted(group))
            except XAlignError:
                continue
            ranked = [candidate for candidate in choice.candidates if candidate.model in truth]
            if len(ranked) < FEWEST or not ranked[0].tied:  # no model that is tied with the first has a score there
                continue
            first, best = ranked[0], max(ranked, key=lambda candidate: truth[candidate.model])
            yield {
                "languages": codes,
                "task": column.label,
                "candidates": len(ranked),
                "tied": sum(candidate.tied for candidate in ranked),
                "success": best.tied,
                "points_lost": 100 * (expit(truth[best.model]) - expit(truth[first.model])),  # scores are logits
                "better_share": np.mean([truth[candidate.model] > truth[first.model] for candidate in ranked]),
            }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The number of cases, the share of successes, and medians of the other outcomes."""
    frame = pd.DataFrame(rows)
    medians = frame[["tied", "candidates", "points_lost", "better_share"]].median()
    by_chance = (frame["tied"] / frame["candidates"]).mean()
    return {"cases": len(rows), "success": frame["success"].mean(), "by_chance": by_chance, **medians}


def main() -> None:
    """Print the outcomes and their summary, with and without the kind of the held-out task."""
    atlas = load_atlas()
    for by_kind in (True, False):
        rows = list(held_out(atlas, by_kind=by_kind))
        for row in rows if by_kind else ():
            print(
                f"{row['languages']:10s} {row['task']:40s} {'yes' if row['success'] else 'no':3s} tied "
                f"{row['tied']:3d} of {row['candidates']:3d}, {row['points_lost']:5.1f} points below the best"
            )
        found = summary(rows)
        print(
            f"\n{'the kind of the held-out task asked for' if by_kind else 'no kind asked for'}: "
            f"the best of the held-out task is tied with the first in {found['success']:.1%} of {found['cases']} cases "
            f"({len(SETS)} sets of languages);\n"
            f"median tie group {found['tied']:.0f} of {found['candidates']:.0f} models (a random model is in it with "
            f"{found['by_chance']:.0%});\nthe first is {found['points_lost']:.1f} points below the best, and "
            f"{found['better_share']:.1%} of the models are better (medians)"
        )


if __name__ == "__main__":
    main()
