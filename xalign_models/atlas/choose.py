"""Ranks models for given languages by published and measured scores, with confidence intervals.

A model's score on a task is a noisy observation of its quality for these languages. On the logit scale,

    score(task, model) = difficulty(task) + quality(model) + affinity(task, model).

Difficulty and quality are estimated by alternating least squares, with quality shrunk weakly to the mean. Tasks of
another kind than the requested one have a smaller weight. The variance of the affinities is estimated from the
residuals of the better half of the models; it gives the quality's standard error, and so the models tied with the best.
Scores are compared only within a column (one text, one metric). Models that no chain of shared columns connects with
the others are not ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from xalign_models.atlas.relatives import Relative, nearest
from xalign_models.atlas.table import Atlas, Column, PublishedModel
from xalign_models.errors import LanguageError, ModelError
from xalign_models.linalg.arrays import Float64

TASKS = ("retrieval", "bitext", "sts", "classification")
OTHER_KIND = 0.25
"""Weight of a task of another kind than the requested one."""
PULL = 0.5
"""Shrinkage of a model's quality to the mean, in observations."""
LEAST, MOST = 0.01, 0.995
"""Scores are clipped to this range before the logit."""
WIDTH = 1.96
"""Half a 95% interval, in standard errors."""
FEWEST = 10
"""Models that a column needs in a language for the language to count as evidence."""
PERMISSIVE = frozenset("apache-2.0 apache-2 mit bsd-2-clause bsd-3-clause isc cc0-1.0 unlicense cc-by-4.0".split())
"""Licences that require attribution at most."""
PAIRINGS = ((0,), (1, 2), (3, 4))
"""Kinds of a column that count as one pairing: alone, with English, with others."""
ROUNDS = 100
"""Rounds of alternating least squares."""


@dataclass(frozen=True)
class Wish:
    """Requirements on a model.

    Attributes:
        languages: Canonical codes.
        task: ``retrieval``, ``bitext``, ``sts`` or ``classification``; None for all.
        max_parameters: Upper limit; excludes models of unknown size.
        licence: ``permissive``, or a licence as the registry names it; None for any.
        max_dimension: Upper limit; excludes models of unknown dimension.
    """

    languages: tuple[str, ...]
    task: str | None = None
    max_parameters: int | None = None
    licence: str | None = None
    max_dimension: int | None = None

    def __post_init__(self) -> None:
        if not self.languages:
            raise LanguageError("--languages: name at least one language, e.g. sw,te,yo.")
        if self.task is not None and self.task not in TASKS:
            raise ModelError(f"--task {self.task}: one of {', '.join(TASKS)} is needed.")

    def admits(self, model: PublishedModel) -> bool:
        """Whether the model's size, licence and dimension are known to fit."""
        licences = PERMISSIVE if self.licence == "permissive" else {self.licence}
        return (
            (self.max_parameters is None or (model.parameters or np.inf) <= self.max_parameters)
            and (self.max_dimension is None or (model.dimension or np.inf) <= self.max_dimension)
            and (self.licence is None or (model.licence or "").lower() in licences)
        )


@dataclass(frozen=True)
class RankedModel:
    """A ranked model.

    Attributes:
        model: Name of the model.
        score: Expected mean score on all tasks for these languages.
        low: Lower end of the 95% interval of ``score``.
        high: Upper end.
        tied: Whether its difference from the first is not significant.
        tasks: Score on each task for these languages, by the column's label.
        trained_on: Tasks whose training data it has seen, as its authors declare.
        about: The model's entry in the registry.
    """

    model: str
    score: float
    low: float
    high: float
    tied: bool
    tasks: dict[str, float]
    trained_on: tuple[str, ...]
    about: PublishedModel


@dataclass(frozen=True)
class ModelRanking:
    """Candidates, the best first, and gaps of the evidence.

    Attributes:
        candidates: Ranked models.
        evidence: Labels of the columns that were used.
        coverage: Number of tasks of the requested kind with scores for each language.
        guessed: Language without scores -> the relative used instead.
        missing: Languages without scores or a relative.
        notes: Caveats, a sentence each.
    """

    candidates: tuple[RankedModel, ...]
    evidence: tuple[str, ...]
    coverage: dict[str, int]
    guessed: dict[str, Relative] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose(atlas: Atlas, wish: Wish, *, without: Sequence[str] = ()) -> ModelRanking:
    """Rank the models that meet the requirements; ``without`` names tasks to ignore.

    Raises:
        LanguageError: No language has any evidence.
        ModelError: No model fits the wish.
    """
    columns = [column for column in atlas.columns if column.task not in without]
    languages_of = {column: known_languages(column) for column in columns}
    with_scores = sorted({language for languages in languages_of.values() for language in languages})
    relatives = {code: nearest(code, with_scores) for code in wish.languages if code not in with_scores}
    guessed = {code: relative for code, relative in relatives.items() if relative}
    missing = [code for code in relatives if code not in guessed]
    languages = [guessed[code].language if code in guessed else code for code in wish.languages if code not in missing]
    notes = []
    if not languages:
        raise LanguageError(f"No task has scores for {', '.join(missing)} or a related language; name other languages.")
    observed = [(column, scores) for column in columns if (scores := task_scores(column, languages)) is not None]
    models = sorted({model for column, _ in observed for model in column.models})
    table = np.full((len(observed), len(models)), np.nan)
    for row, (column, scores) in enumerate(observed):
        table[row, np.searchsorted(models, column.models)] = scores
    table, unconnected = _connected(table)
    if unconnected:
        notes.append(
            f"{unconnected} models share no task with the others for these languages and are not ranked. "
            "Scoring one published model on your tasks ties them to the rest."
        )
    about = [atlas.models.get(model, PublishedModel(model)) for model in models]
    finite = np.isfinite(table)
    chosen = np.flatnonzero(np.array([wish.admits(model) for model in about]) & finite.any(axis=0))
    if not len(chosen):
        raise ModelError("No model with scores for these languages fits; relax --max-params, --license or --dim.")
    unknown = sum(
        (wish.max_parameters is not None and model.parameters is None)
        or (wish.max_dimension is not None and model.dimension is None)
        or (wish.licence is not None and model.licence is None)
        for model in about
    )
    if unknown:
        notes.append(f"{unknown} models are left out because the registry does not say whether they fit.")
    asked = [column for column in columns if wish.task in (None, column.kind)]
    coverage = {
        language: len({column.task for column in asked if language in languages_of[column]})
        for language in wish.languages
    }
    of_kind = np.array([wish.task in (None, column.kind) for column, _ in observed])
    quality, error, difficulty = fit(table, np.where(of_kind, 1.0, OTHER_KIND))
    if of_kind.any():
        difficulty = difficulty[of_kind]
    else:
        notes.append(f"No {wish.task} task has scores for these languages; tasks of other kinds stand in.")
    order = chosen[np.argsort(-quality[chosen], kind="stable")]
    first = order[0]
    labels = [column.label for column, _ in observed]
    tasks = {column.task for column, _ in observed}

    def expected(model_quality: float) -> float:
        return float(_score(difficulty + model_quality).mean())

    candidates = tuple(
        RankedModel(
            model=models[index],
            score=expected(quality[index]),
            low=expected(quality[index] - WIDTH * error[index]),
            high=expected(quality[index] + WIDTH * error[index]),
            tied=bool(quality[first] - quality[index] <= WIDTH * np.hypot(error[first], error[index])),
            tasks={labels[row]: float(_score(table[row, index])) for row in np.flatnonzero(finite[:, index])},
            trained_on=tuple(task for task in about[index].trained_on or () if task in tasks),
            about=about[index],
        )
        for index in order
    )
    return ModelRanking(candidates, tuple(labels), coverage, guessed, tuple(missing), tuple(notes))


def known_languages(column: Column) -> list[str]:
    """Languages that enough models of a column have, alone or in pairs."""
    enough = np.isfinite(column.scores).sum(axis=0).max(axis=1) >= min(FEWEST, len(column.models))
    return [language for language, ok in zip(column.languages, enough, strict=True) if ok]


def task_scores(column: Column, languages: Sequence[str]) -> Float64 | None:
    """A column's mean logits for languages, (models,); NaN for models with less than half of the cells.

    A language counts once for each of the column's pairings: alone, with English, with others. A model that lacks cells
    is compared with the mean of the other models on the cells that it has.

    Returns:
        None if no model has half of the cells.
    """
    cells = []
    for language in languages:
        if language in column.languages:
            place = column.languages.index(language)
            for pairing in PAIRINGS:
                kinds = [kind for kind in pairing if column.counts[place, kind] > 0]
                if kinds:
                    cells.append(_logit(column.scores[:, place, kinds].mean(axis=1)))
    table = np.array([cell for cell in cells if np.isfinite(cell).sum() >= min(FEWEST, len(column.models))])
    if not len(table):
        return None
    observed = np.isfinite(table)
    means = np.nanmean(table, axis=1)
    residuals = np.where(observed, table - means[:, None], 0.0).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
    scores = np.where(2 * observed.sum(axis=0) >= len(table), means.mean() + residuals, np.nan)
    return scores if np.isfinite(scores).any() else None


def fit(table: Float64, weights: Float64, rounds: int = ROUNDS) -> tuple[Float64, Float64, Float64]:
    """Fit the additive model of the module's description.

    Args:
        table: Logits (tasks, models), NaN where a model lacks a task.
        weights: Task weights (tasks,).
        rounds: Rounds of alternating least squares.

    Returns:
        Quality (models,), its standard error (models,), difficulty (tasks,).
    """
    observed = np.isfinite(table)
    weighted = np.where(observed, weights[:, None], 0.0)
    evidence = weighted.sum(axis=0)
    quality = np.zeros(table.shape[1])
    difficulty = np.zeros(table.shape[0])
    for _ in range(rounds):
        difficulty = np.where(observed, table - quality, 0).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
        quality = np.where(observed, weighted * (table - difficulty[:, None]), 0).sum(axis=0) / (evidence + PULL)
    better = quality >= np.median(quality[evidence > 0])
    squares = np.where(observed, weighted * (table - difficulty[:, None] - quality) ** 2, 0)[:, better]
    freedom = max(observed[:, better].sum() - better.sum() - len(table), 1)
    return quality, np.sqrt(squares.sum() / freedom / (evidence + PULL)), difficulty


def _connected(table: Float64) -> tuple[Float64, int]:
    """The table restricted to the largest group of models connected by shared tasks, and the number of other models."""
    observed = np.isfinite(table)
    best = np.zeros(table.shape[1], dtype=bool)
    unvisited = np.ones(len(table), dtype=bool)
    while unvisited.any():
        models = observed[np.argmax(unvisited)]
        while (grown := observed[(observed & models).any(axis=1)].any(axis=0)).sum() > models.sum():
            models = grown
        unvisited &= ~(observed & models).any(axis=1)
        if models.sum() > best.sum():
            best = models
    return np.where(best, table, np.nan), int((observed.any(axis=0) & ~best).sum())


def _logit(score: Float64) -> Float64:
    clipped = np.clip(score, LEAST, MOST)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _score(logit: Float64) -> Float64:
    return np.asarray(1 / (1 + np.exp(-logit)))
