"""Which model to use for given languages: published and measured evidence, ranked with what chance allows.

A task's score of a model is an observation of the model's quality for these languages, blurred by what the task happens
to favour. On the logit scale,

    score(task, model) = difficulty(task) + quality(model) + affinity(task, model).

Difficulty and quality come from alternating least squares with a weak pull of quality to the mean. A task of another
kind than the one that is asked for has a smaller weight. The variance of the affinities comes from the residuals of the
better half of the models; it says how far a quality may be off, and so which models cannot be told from the first.
Scores are compared within a column alone (one text, one metric). Models that share no column with the others, not even
through third ones, are not ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from xalign_models.atlas.relatives import Relative, nearest
from xalign_models.atlas.table import Atlas, Column, Floats, PublishedModel
from xalign_models.errors import LanguageError, ModelError

TASKS = ("retrieval", "bitext", "sts", "classification")
OTHER_KIND = 0.25
"""Weight of a task of another kind than the one that is asked for."""
PULL = 0.5
"""Pull of a model's quality to the mean, in observations."""
LEAST, MOST = 0.01, 0.995
"""Scores are clipped to this range before the logit."""
WIDTH = 1.96
"""Half a 95% interval, in standard errors."""
FEWEST = 10
"""A language of a column counts as evidence if so many models have it."""
PERMISSIVE = frozenset("apache-2.0 apache-2 mit bsd-2-clause bsd-3-clause isc cc0-1.0 unlicense cc-by-4.0".split())
"""Licences that ask for no more than naming the authors."""
PAIRINGS = ((0,), (1, 2), (3, 4))
"""Kinds of a column that count as one: alone, with English, with others."""
ROUNDS = 100
"""Rounds of alternating least squares."""


@dataclass(frozen=True)
class Wish:
    """What a model is wanted for.

    Attributes:
        languages: Canonical codes.
        task: ``retrieval``, ``bitext``, ``sts`` or ``classification``; None is all of them.
        max_parameters: Most parameters; models of unknown size are left out then.
        licence: ``permissive``, or a licence as the registry names it; None is any.
        max_dimension: Longest vectors; models of unknown dimension are left out then.
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
class Candidate:
    """A model that can be chosen.

    Attributes:
        model: Its name.
        score: Expected mean score over the tasks for these languages, if it were scored on all of them.
        low: Lower end of the 95% interval of ``score``.
        high: Upper end.
        tied: Whether it cannot be told from the first.
        tasks: Score on each task for these languages, by the column's label.
        trained_on: Those of the tasks whose training data it has seen, as its authors declare.
        about: What the registry says of it.
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
class Choice:
    """Candidates, the best first, and what the evidence lacks.

    Attributes:
        candidates: Ranked models.
        evidence: Labels of the columns that were used.
        coverage: Number of tasks, of the asked kind, that have scores for each language.
        guessed: Language without any score -> the relative that stands in for it.
        missing: Languages without any score and without a relative.
        notes: What a reader must know, a sentence each.
    """

    candidates: tuple[Candidate, ...]
    evidence: tuple[str, ...]
    coverage: dict[str, int]
    guessed: dict[str, Relative] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose(atlas: Atlas, wish: Wish, *, without: Sequence[str] = ()) -> Choice:
    """Rank models for a wish.

    Args:
        atlas: Published scores, and measured ones if any.
        wish: What the model is for.
        without: Tasks to ignore.

    Raises:
        LanguageError: No language has any evidence.
        ModelError: No model fits the wish.
    """
    columns = [column for column in atlas.columns if column.task not in without]
    by = {column: known_languages(column) for column in columns}
    known = sorted({language for languages in by.values() for language in languages})
    guessed, missing, notes = {}, [], []
    for language in wish.languages:
        if language not in known:
            relative = nearest(language, known)
            if relative is None:
                missing.append(language)
            else:
                guessed[language] = relative
    languages = [
        guessed[language].language if language in guessed else language
        for language in wish.languages
        if language not in missing
    ]
    if not languages:
        raise LanguageError(f"No task has scores for {', '.join(missing)} or a relative; name other languages.")
    observed = [(column, scores) for column in columns if (scores := task_scores(column, languages)) is not None]
    models = sorted({model for column, _ in observed for model in column.models})
    table = np.full((len(observed), len(models)), np.nan)
    place = {model: index for index, model in enumerate(models)}
    for row, (column, scores) in enumerate(observed):
        table[row, [place[model] for model in column.models]] = scores
    table, apart = _connected(table)
    if apart:
        notes.append(
            f"{apart} models share no task with the others for these languages and are not ranked. "
            "Scoring one published model on your tasks ties them to the rest."
        )
    about = [atlas.models.get(model, PublishedModel(model)) for model in models]
    admitted = np.array([wish.admits(model) for model in about])
    chosen = np.flatnonzero(admitted & np.isfinite(table).any(axis=0))
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
    coverage = {
        language: len(
            {column.task for column in columns if wish.task in (None, column.kind) and language in by[column]}
        )
        for language in wish.languages
    }
    asked = np.array([wish.task in (None, column.kind) for column, _ in observed])
    quality, error, difficulty = fit(table, np.where(asked, 1.0, OTHER_KIND))
    if asked.any():
        difficulty = difficulty[asked]
    else:
        notes.append(f"No {wish.task} task has scores for these languages; tasks of other kinds stand in.")
    order = chosen[np.argsort(-quality[chosen], kind="stable")]
    first = order[0]
    labels = [column.label for column, _ in observed]
    tasks = {column.task for column, _ in observed}
    candidates = tuple(
        Candidate(
            model=models[index],
            score=_expected(difficulty, quality[index]),
            low=_expected(difficulty, quality[index] - WIDTH * error[index]),
            high=_expected(difficulty, quality[index] + WIDTH * error[index]),
            tied=bool(quality[first] - quality[index] <= WIDTH * np.hypot(error[first], error[index])),
            tasks={
                labels[row]: float(_score(table[row, index])) for row in np.flatnonzero(np.isfinite(table[:, index]))
            },
            trained_on=tuple(task for task in about[index].trained_on or () if task in tasks),
            about=about[index],
        )
        for index in order
    )
    return Choice(candidates, tuple(labels), coverage, guessed, tuple(missing), tuple(notes))


def known_languages(column: Column) -> list[str]:
    """Languages of which a column is evidence: enough models have them, alone or in pairs."""
    enough = np.isfinite(column.scores).sum(axis=0).max(axis=1) >= min(FEWEST, len(column.models))
    return [language for language, ok in zip(column.languages, enough, strict=True) if ok]


def task_scores(column: Column, languages: Sequence[str]) -> Floats | None:
    """A column's evidence for languages: logits (models,), NaN where a model has less than half of it.

    A language counts once for each pairing that the column has: alone, with English, with others. Where a model lacks
    some of it, what it has is compared with the mean of the other models on the same.

    Returns:
        None if no model has half of it.
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
    has = np.isfinite(table)
    means = np.nanmean(table, axis=1)
    residuals = np.where(has, table - means[:, None], 0.0).sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    scores = np.where(2 * has.sum(axis=0) >= len(table), means.mean() + residuals, np.nan)
    return scores if np.isfinite(scores).any() else None


def fit(table: Floats, weights: Floats, rounds: int = ROUNDS) -> tuple[Floats, Floats, Floats]:
    """The additive model of the module's description.

    Args:
        table: Logits (tasks, models), NaN where a model lacks a task.
        weights: Of the tasks (tasks,).
        rounds: Of alternating least squares.

    Returns:
        Quality (models,), its standard error (models,), difficulty (tasks,).
    """
    has = np.isfinite(table)
    weighted = np.where(has, weights[:, None], 0.0)
    evidence = weighted.sum(axis=0)
    quality = np.zeros(table.shape[1])
    difficulty = np.zeros(table.shape[0])
    for _ in range(rounds):
        difficulty = np.where(has, table - quality, 0).sum(axis=1) / np.maximum(has.sum(axis=1), 1)
        quality = np.where(has, weighted * (table - difficulty[:, None]), 0).sum(axis=0) / (evidence + PULL)
    better = quality >= np.median(quality[evidence > 0])
    squares = np.where(has, weighted * (table - difficulty[:, None] - quality) ** 2, 0)[:, better]
    freedom = max(has[:, better].sum() - better.sum() - len(table), 1)
    return quality, np.sqrt(squares.sum() / freedom / (evidence + PULL)), difficulty


def _connected(table: Floats) -> tuple[Floats, int]:
    """The table without the models that no chain of shared tasks ties to the most models, and how many those are."""
    has = np.isfinite(table)
    best = np.zeros(table.shape[1], dtype=bool)
    left = np.ones(len(table), dtype=bool)
    while left.any():
        models = has[np.argmax(left)]
        while (grown := has[(has & models).any(axis=1)].any(axis=0)).sum() > models.sum():
            models = grown
        left &= ~(has & models).any(axis=1)
        if models.sum() > best.sum():
            best = models
    return np.where(best, table, np.nan), int((has.any(axis=0) & ~best).sum())


def _logit(score: Floats) -> Floats:
    clipped = np.clip(score, LEAST, MOST)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _score(logit: Floats | float) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.asarray(logit))))


def _expected(difficulty: Floats, quality: float) -> float:
    return float(_score(difficulty + quality).mean())
