"""Tests ``xalign choose`` on tasks that it has not seen: ``python -m docs.tools.choose_holdout``.

Each task is left out once, together with the tasks of the same text. A choice succeeds if the task's best model is tied
with the first choice, among the models that have a score there. Prints a line for each task and the share of successes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True)
class HeldOut:
    """The outcome of a choice on a task that it has not seen.

    Attributes:
        languages: Codes that were asked for.
        task: The held-out task.
        candidates: Models with a score there.
        tied: Candidates that are tied with the first choice.
        success: Whether the best candidate is among them.
        lost: Score of the best candidate minus the first choice's.
        better: Share of candidates with a higher score than the first choice's.
    """

    languages: str
    task: str
    candidates: int
    tied: int
    success: bool
    lost: float
    better: float


def held_out(atlas: Atlas, *, by_kind: bool) -> Iterator[HeldOut]:
    """The outcome for each set of languages and each task with at least half of them; ``by_kind`` asks for its kind."""
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
            yield HeldOut(
                codes,
                column.label,
                len(ranked),
                sum(candidate.tied for candidate in ranked),
                best.tied,
                logistic(truth[best.model]) - logistic(truth[first.model]),
                float(np.mean([truth[candidate.model] > truth[first.model] for candidate in ranked])),
            )


def logistic(value: float) -> float:
    """A score from its logit."""
    return float(1 / (1 + np.exp(-value)))


def summary(rows: list[HeldOut]) -> dict[str, float]:
    """The number of cases, the share of successes, and medians of the other outcomes."""
    return {
        "cases": len(rows),
        "success": float(np.mean([row.success for row in rows])),
        "tied": float(np.median([row.tied for row in rows])),
        "candidates": float(np.median([row.candidates for row in rows])),
        "points_lost": 100 * float(np.median([row.lost for row in rows])),
        "better_share": float(np.median([row.better for row in rows])),
        "by_chance": float(np.mean([row.tied / row.candidates for row in rows])),
    }


def main() -> None:
    """Print the outcomes and their summary, with and without the kind of the held-out task."""
    atlas = load_atlas()
    for by_kind in (True, False):
        rows = list(held_out(atlas, by_kind=by_kind))
        for row in rows if by_kind else ():
            print(
                f"{row.languages:10s} {row.task:40s} {'yes' if row.success else 'no ':3s} tied {row.tied:3d} of "
                f"{row.candidates:3d}, {100 * row.lost:5.1f} points below the best"
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
