"""Evenness of a model over languages, from published scores; languages are the sampling units.

Formulas are in ``docs/atlas.md``. All values are differences or means of scores between -1 and 1.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xalign_models.atlas.table import KINDS, Atlas, Column, PublishedModel
from xalign_models.linalg.arrays import Float64, Mask
from xalign_models.results.significance import ALPHA, ZERO, holm

DRAWS = 1000
"""Bootstrap samples of languages, or of models, behind an interval."""
INTERVAL = (0.025, 0.975)
MULTILINGUAL = 0.5
"""Level on a task from which a model counts as multilingual there; below, evenness has no meaning."""
ENGLISH = "eng-Latn"


@dataclass(frozen=True, eq=False)
class Levels:
    """A column's scores by language other than English, of the models with scores in all of them.

    Attributes:
        models: Names, one per row.
        languages: Canonical codes, one per column.
        level: (models, languages) mean of both directions with English, or the same-language score if the column has no
            pairs with English.
        centricity: Level less the mean of both directions with the other languages; NaN where there are none.
        asymmetry: English into the language less the language into English; NaN where a pair has no direction.
        gap: Mean of the same-language scores of the language and of English, less the level; NaN without them.
        low_resource: (languages,) whether few multilingual models name the language.
    """

    models: tuple[str, ...]
    languages: tuple[str, ...]
    level: Float64
    centricity: Float64
    asymmetry: Float64
    gap: Float64
    low_resource: Mask

    @property
    def scripts(self) -> npt.NDArray[np.str_]:
        """(languages,) the script of each language, four letters."""
        return np.array([language.split("-")[1] for language in self.languages])


def levels(atlas: Atlas, column: Column) -> Levels:
    """Scores by language of the models that have every language of the column."""
    places = [place for place, language in enumerate(column.languages) if language != ENGLISH]
    same, into, leaving = (column.scores[:, :, KINDS.index(kind)] for kind in ("same", "english_into", "english_from"))
    paired = [place for place in places if column.counts[place, 1:3].any()]
    chosen = paired or [place for place in places if column.counts[place, KINDS.index("same")] > 0]
    level = (column.mean("english_into", "english_from") if paired else same)[:, chosen]
    rows = np.flatnonzero(np.isfinite(level).all(axis=1))
    level = level[rows]
    picked = np.ix_(rows, np.array(chosen, dtype=np.intp))
    missing = np.full_like(level, np.nan)
    gap = missing
    if paired and ENGLISH in column.languages:
        gap = (same[picked] + same[rows, column.languages.index(ENGLISH)][:, None]) / 2 - level
    return Levels(
        models=tuple(column.models[row] for row in rows),
        languages=tuple(column.languages[place] for place in chosen),
        level=level,
        centricity=level - column.mean("other_into", "other_from")[picked] if paired else missing,
        asymmetry=missing if column.kind == "sts" or not paired else into[picked] - leaving[picked],
        gap=gap,
        low_resource=np.array([atlas.low_resource(column.languages[place]) for place in chosen]),
    )


def summarise(scores: Levels, sample: npt.NDArray[np.int64] | None = None) -> dict[str, Float64]:
    """Each statistic (models,) over all languages, or over a sample of them (indices, with repetition)."""
    chosen = np.arange(len(scores.languages)) if sample is None else sample
    level, low, scripts = scores.level[:, chosen], scores.low_resource[chosen], scores.scripts[chosen]
    tenth = max(1, round(len(chosen) / 10))
    mean, worst = level.mean(axis=1), np.sort(level, axis=1)[:, :tenth].mean(axis=1)
    membership = (scripts[:, None] == np.unique(scripts)).astype(np.float64)
    by_script = level @ (membership / membership.sum(axis=0))
    named, rare = level[:, ~low], level[:, low]
    lag = named.mean(axis=1) - rare.mean(axis=1) if rare.size and named.size else np.full(len(level), np.nan)
    return {
        "level": mean,
        "english_centricity": _mean(scores.centricity[:, chosen]),
        "asymmetry": _mean(scores.asymmetry[:, chosen]),
        "gap": _mean(scores.gap[:, chosen]),
        "spread": level.std(axis=1),
        "script_spread": by_script.std(axis=1),
        "worst_tenth": worst,
        "evenness": np.where(mean > 0, worst / np.where(mean > 0, mean, 1), np.nan),
        "low_resource_gap": lag,
    }


def _mean(values: Float64) -> Float64:
    """Mean (models,) over the languages with any value; NaN for models that lack one of these languages."""
    available = ~np.isnan(values).all(axis=0)
    return values[:, available].mean(axis=1) if available.any() else np.full(len(values), np.nan)


def with_intervals(scores: Levels, *, draws: int = DRAWS, seed: int = 0) -> dict[str, tuple[Float64, Float64, Float64]]:
    """Each statistic (models,) with the ends of its 95% interval; languages are resampled with replacement."""
    rng = np.random.default_rng(seed)
    samples = [summarise(scores, rng.integers(0, len(scores.languages), len(scores.languages))) for _ in range(draws)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of statistics that a model has in no sample: they are NaN
        return {
            name: (value, *np.nanquantile([sample[name] for sample in samples], INTERVAL, axis=0))
            for name, value in summarise(scores).items()
        }


@dataclass(frozen=True)
class Ranked:
    """A model's place among others by its mean over languages; 1 is the best rank and the best group.

    ``lowest`` and ``highest`` are the best and worst rank in the 95% interval. The models of a group do not differ
    significantly from its first.
    """

    model: str
    mean: float
    rank: int
    lowest: int
    highest: int
    group: int


def rank_groups(models: Sequence[str], level: Float64, *, draws: int = DRAWS, seed: int = 0) -> list[Ranked]:
    """Rank models by their mean over languages, and group those without a significant difference.

    A group begins with the best model that is not yet in one; a model joins while its paired difference to that first
    model is not significant. Differences of all pairs are tested by t over languages, with Holm's correction, so that
    equal models are split with a probability of 5% at most. ``level`` has the scores (models, languages), without gaps.
    Intervals of ranks come from bootstrap samples of the languages.
    """
    from scipy.special import stdtr

    count = level.shape[1]
    order = np.argsort(-level.mean(axis=1), kind="stable")
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws) / count
    means = weights @ level[order].T
    ranks = (-means).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1
    lowest, highest = np.quantile(ranks, INTERVAL, axis=0, method="nearest")
    gaps = level[order][:, None] - level[order]
    errors = gaps.std(axis=2, ddof=1) / np.sqrt(count) if count > 1 else np.full(gaps.shape[:2], np.inf)
    p = 2 * stdtr(max(count - 1, 1), -np.abs(gaps.mean(axis=2)) / np.maximum(errors, ZERO))
    upper = np.triu_indices(len(order), 1)
    p[upper] = holm(p[upper]) if len(order) > 1 else p[upper]
    result: list[Ranked] = []
    group, first = 0, 0
    for place, row in enumerate(order):
        if not group or p[first, place] < ALPHA:
            group, first = group + 1, place
        mean = float(level[row].mean())
        result.append(Ranked(models[row], mean, place + 1, int(lowest[place]), int(highest[place]), group))
    return result


@dataclass(frozen=True)
class Association:
    """Spearman's rank correlation over models, with its 95% interval from resampled clusters of models."""

    rho: float
    low: float
    high: float
    models: int


def association(x: Float64, y: Float64, clusters: Sequence[str], *, seed: int = 0) -> Association | None:
    """Rank correlation of two properties of models; None for fewer than five models with both.

    ``clusters`` are resampled with replacement, such as the models' organisations. Samples weight the ranks of the
    whole.
    """
    from scipy.stats import rankdata

    finite = np.isfinite(x) & np.isfinite(y)
    if finite.sum() < 5:
        return None
    a, b = rankdata(x[finite]), rankdata(y[finite])
    names, member = np.unique(np.asarray(clusters)[finite], return_inverse=True)
    chances = np.full(len(names), 1 / len(names))
    weights = np.random.default_rng(seed).multinomial(len(names), chances, size=DRAWS)[:, member].astype(np.float64)
    low, high = np.nanquantile(_correlation(a, b, weights), INTERVAL)
    return Association(float(_correlation(a, b, np.ones((1, len(a))))[0]), float(low), float(high), len(a))


def _correlation(a: Float64, b: Float64, weights: Float64) -> Float64:
    """Pearson's correlation (draws,) under weights (draws, models); NaN for constant samples."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    means = weights @ np.stack([a, b, a * b, a * a, b * b], axis=1)
    first, second, product, *squares = means.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((product - first * second) / np.sqrt((squares[0] - first**2) * (squares[1] - second**2)))


def organisation(model: str) -> str:
    """The part of a model's name before the slash: models of one organisation share text, code and base models."""
    return model.partition("/")[0]


PROPERTIES: Mapping[str, Callable[[PublishedModel], float | None]] = {
    "parameters": lambda model: model.parameters,
    "dimension": lambda model: model.dimension,
    "release_year": lambda model: _year(model.release_date),
    "languages": lambda model: model.languages or None,
    "training_tasks": lambda model: None if model.trained_on is None else len(model.trained_on),
}
"""Properties of models that evenness is correlated with; None if the registry does not give them."""


def _year(date: str | None) -> float | None:
    """``2024-07-01`` -> about 2024.5; a month is a twelfth."""
    if not date:
        return None
    year, month, *_ = [*map(int, date.split("-")), 1]
    return year + (month - 1) / 12


def multilingual(scores: Levels) -> Mask:
    """(models,) whether a model's level reaches ``MULTILINGUAL``."""
    return np.asarray(scores.level.mean(axis=1) >= MULTILINGUAL)


def properties(atlas: Atlas, scores: Levels, name: str) -> Float64:
    """A property of each model (models,), NaN if the registry does not give it."""
    return np.array([PROPERTIES[name](atlas.models[model]) for model in scores.models], dtype=np.float64)
