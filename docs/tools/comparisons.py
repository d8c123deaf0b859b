"""Comparisons of alignment methods that claims and tables of pages call, beside :mod:`docs.tools.sources`."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from docs.tools.sources import ANALYSES, SOURCES, analyses, analysis, records, score, source
from xalign_models.languages import display_name

BOARD = {
    "Tatoeba": "Tatoeba36",
    "FLORES": "FloresPrecision",
    "XQuAD-R": "XQuAD-R",
    "STS17": "STS17CrossLingual",
    "SIB-200": "SIB200ZeroShot",
    "tweets": "TweetSentimentZeroShot",
    "products": "ProductSearchStandIn",
}
"""Tasks by their short names."""
COMPOSED = ("procrustes-shrunk", "centered+procrustes-shrunk", "lsar+procrustes-shrunk", "centered+affine")
"""Alignments of which only the means are committed."""
SOURCES |= {"BOARD": BOARD, "COMPOSED": COMPOSED}
METHODS = ("plain", "centered", "lir-1", "lir-15", "lsar", "procrustes", "affine", *COMPOSED)


@source
def falling(*values: float) -> bool:
    """Whether each value is greater than the next."""
    return all(first > second for first, second in itertools.pairwise(values))


@source
def by_method(task: str, backbone: str, *methods: str, **options: Any) -> list[float]:
    """:func:`score` of a backbone's alignments, over the subsets that all of them have."""
    names = [f"{method}__{backbone}" for method in methods]
    return [score(name, task, beside=names, **options) for name in names]


@source
def language_at(accuracies: Mapping[str, float], accuracy: float) -> str:
    """The language of the subset, such as ``deu_Latn-eng_Latn``, that has this accuracy, and the accuracy."""
    subsets = [subset for subset, value in accuracies.items() if value == accuracy]
    language = display_name(subsets[0].split("-")[0].replace("_", "-")) if len(subsets) == 1 else "several"
    return f"{language} {accuracy:.1f}"


@source
def gaining(**where: object) -> str:
    """In how many languages all four measures of a map gain: "3 of 5"."""
    measures = (analyses("linear-mapping-gains", column, **where) for column in ("dD", "dC", "fD", "fC"))
    gains = [dd > 0 and dc > 0 and fd > 0.5 and fc > 0.5 for dd, dc, fd, fc in zip(*measures, strict=True)]
    return f"{sum(gains)} of {len(gains)}"


def _choices(model: str) -> list[dict[str, str]]:
    return [row for row in records(f"{ANALYSES}/choices-choices.csv") if row["model"] == model]


@source
def chosen_alignments(model: str) -> list[str]:
    """The alignments that ``xalign analyse choices`` chose for a model, by seed, under their registered names."""
    chosen = (row["alignment"] for row in _choices(model) if row["chosen"] == "True")
    return [name.replace(" shrink=1.0", "-shrunk").replace(" k=", "-") for name in chosen]


@source
def by_frequency(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, the most frequent first."""
    return dict(Counter(values).most_common())


@source
def recommended_gaps(*backbones: str) -> list[float]:
    """For each backbone, the largest distance of a chosen alignment's mean score from the best candidate's."""
    return [max(scores.values()) - min(chosen) for scores, chosen in map(_mean_scores, backbones)]


@source
def chosen_spread(backbone: str) -> float:
    """The largest difference between the mean scores of a backbone's chosen alignments."""
    _, chosen = _mean_scores(backbone)
    return max(chosen) - min(chosen)


@source
def harmless_gains(backbone: str) -> list[str]:
    """Candidates that score above plain and are worse in no language, in any division into folds."""
    rows = _choices(f"xalign/plain__{backbone}")
    plain = next(float(row["score"]) for row in rows if row["alignment"] == "plain")
    return sorted({row["alignment"] for row in rows if float(row["score"]) > plain and row["losses"] == "0"})


def _mean_scores(backbone: str) -> tuple[dict[str, float], list[float]]:
    """Each candidate's mean score over the divisions into folds, and those of the chosen ones."""
    rows = _choices(f"xalign/plain__{backbone}")
    names = {row["alignment"] for row in rows}
    scores = {name: fmean(float(row["score"]) for row in rows if row["alignment"] == name) for name in names}
    return scores, [scores[name] for name in {row["alignment"] for row in rows if row["chosen"] == "True"}]


@source
def mean(method: str, backbone: str, task: str) -> float:
    """A method's mean on a task in percent, also where only the mean is committed."""
    model = f"{method}__{backbone}"
    if method not in COMPOSED:
        return score(model, task)
    return analysis("compositions", "score", model=f"xalign/{model}", task=task, language="mean")


@source
def points_under_best(method: str, backbone: str, task: str) -> float:
    """The distance of a method from the best one of its space, in points."""
    return max(mean(row, backbone, task) for row in METHODS) - mean(method, backbone, task)


@source
def good_everywhere(backbone: str) -> list[str]:
    """Methods within half a point of the best on three retrieval tasks, and at most that far below plain elsewhere."""
    return [
        row
        for row in METHODS
        if all(points_under_best(row, backbone, BOARD[task]) <= 0.5 for task in ("Tatoeba", "FLORES", "XQuAD-R"))
        and all(mean("plain", backbone, task) - mean(row, backbone, task) <= 0.5 for task in BOARD.values())
    ]
