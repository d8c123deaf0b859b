"""The table that ``choose`` and the page read: a score of every model, kind of task and language, with its interval.

A score is the mean over the tasks of a kind that have the language, each in its column with most models; a task that a
model lacks counts as predicted by :mod:`factors <xalign_models.atlas.factors>`, a language that no task of the kind has
by :mod:`relatives <xalign_models.atlas.relatives>`. Row (kind, language) and model m are kept as

    s = 1 / (1 + exp(-u_row v_m)) + residual,    s_low, s_high = logistic(logit s -+ w),    w = exp(a_row + b_m,kind) f,

where f is the share of the row's tasks that the model lacks: a score that is measured whole has no interval. Where no
task has the language, b is left out, because the doubt is about the language. The spreads a and b are those of the
predictions' standard errors, scaled so that 90% of held-out scores lie inside, apart for missing tasks and languages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from xalign_models.atlas import relatives
from xalign_models.atlas.factors import LEAST, MOST, OTHER, Cell, Factors, cells_of, fit, infer, logit, score_of
from xalign_models.atlas.table import TASKS, Atlas, Column
from xalign_models.errors import ResultsError
from xalign_models.languages import FLORES_200
from xalign_models.linalg.arrays import Float64, Mask
from xalign_models.parallel import map_forked

Int16 = npt.NDArray[np.int16]
STEP, UNIT = 500, 200
"""Residuals are kept in units of 1 / STEP, coordinates and spreads in units of 1 / UNIT."""
COVERED = 0.9
"""Share of held-out scores that intervals cover."""
CAUTION = 0.3
"""Factor of w^2 that is taken off a score's logit to rank models, as an investor takes variance off the mean.

Where no task has the language, nothing is taken off: the doubt is about the language and the same for all models.
"""
DRAWS, HIDDEN = 10, 0.1
"""Draws of the pairs of models and languages, and of models and tasks, that scale intervals, and their share."""
_RANK = 12
_BLOCK = 256  # models that are added at once, which bounds the memory
_UNSCALED = np.ones((2, len(TASKS)))


class Row(NamedTuple):
    """A kind of task in a language, for all models (models,).

    ``low`` and ``high`` are the ends of the interval; models are ranked by ``cautious``, the score less its doubt.
    """

    score: Float64
    low: Float64
    high: Float64
    cautious: Float64
    measured: npt.NDArray[np.int64]
    trained: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The table in the parts of the module's formula; rows are kinds times languages.

    Attributes:
        models: Names.
        languages: Canonical codes.
        factors: Of the cells of ``cells_of`` over the atlas' columns.
        tasks: (rows,) number of tasks with the language; 0 where relatives predict.
        rows: (rows, r) ``u``.
        coordinates: (models, r) ``v``.
        residuals: (rows, models).
        states: (rows, models) number of measured tasks, plus ``_factor`` times that of those the model was trained on.
        row_spreads: (rows,) ``a``.
        model_spreads: (kinds, models) ``b``.
        effects: (kinds,) mean of the logit that training on a task adds to the score there.
        scales: (3, kinds) number of standard errors that cover 90% of the scores of models without the language, of
            models without the task in any language, and of all models in a language that no task has.
    """

    models: tuple[str, ...]
    languages: tuple[str, ...]
    factors: Factors
    tasks: Int16
    rows: Int16
    coordinates: Int16
    residuals: Int16
    states: Int16
    row_spreads: Int16
    model_spreads: Int16
    effects: Float64
    scales: Float64

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of each language."""
        return {language: place for place, language in enumerate(self.languages)}

    def count(self, kind: str, language: str) -> int:
        """Number of tasks of a kind that have a language."""
        return int(self.tasks[TASKS.index(kind) * len(self.languages) + self.place[language]])

    def seen(self, kind: str) -> Mask:
        """Whether each model (models,) was measured on a task of a kind, in any language."""
        start = TASKS.index(kind) * len(self.languages)
        return np.asarray(self.states[start : start + len(self.languages)].any(axis=0))

    def row(self, kind: str, language: str, *, adjusted: bool = False) -> Row:
        """The scores of one kind in one language; ``adjusted`` takes the mean gain of training off trained-on tasks."""
        number = TASKS.index(kind)
        at = number * len(self.languages) + self.place[language]
        base = self.coordinates.astype(np.float64) @ self.rows[at] / UNIT**2
        score = np.clip(score_of(base) + self.residuals[at] / STEP, 1e-3, 1 - 1e-3)
        tasks = max(int(self.tasks[at]), 1)
        trained, measured = np.divmod(self.states[at].astype(np.int64), _factor(tasks))
        centre = np.log(score / (1 - score)) - (self.effects[number] * trained / tasks if adjusted else 0)
        known = self.tasks[at] > 0
        own = self.model_spreads[number].astype(np.float64) * known
        width = np.exp((self.row_spreads[at] + own) / UNIT)
        width = width * (1 - measured / tasks)
        low, high = score_of(centre - width), score_of(centre + width)
        open_ = width > 0  # logits of scores beyond LEAST and MOST are cut, so intervals that reach there are open
        return Row(
            score_of(centre),
            np.where(open_ & (low < LEAST), 0.0, low),
            np.where(open_ & (high > MOST), 1.0, high),
            score_of(centre - CAUTION * width**2 * known),
            measured,
            trained,
        )


class _Part(NamedTuple):
    """Rows with data, unquantised: their numbers, tasks, scores, spreads of logits, and states (rows, models)."""

    rows: npt.NDArray[np.intp]
    tasks: npt.NDArray[np.int64]
    scores: Float64
    spreads: Float64
    states: npt.NDArray[np.int64]

    def counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Numbers (rows, models) of tasks that the model was trained on, and of all measured ones."""
        return np.divmod(self.states, _factor(self.tasks)[:, None])


def _factor(tasks: Any) -> Any:
    """The factor of the second number in the states of rows with some number of tasks."""
    return np.maximum(tasks + 1, 16)


def main_columns(columns: Sequence[Column]) -> set[str]:
    """The labels of each task's column with most models, which scores are means over."""
    return {column.label for column in {column.task: column for column in reversed(columns)}.values()}


class _Evidence(NamedTuple):
    """Scores (models, cells), whether a model was trained on a cell's task, the columns that count, and the places."""

    cells: Sequence[Cell]
    scores: Float64
    seen: Mask
    main: set[str]
    place: Mapping[str, int]

    def parts(self, factors: Factors, scales: Float64 = _UNSCALED) -> list[_Part]:
        """The rows of each kind with data; ``scales`` (2 or more, kinds) as in :class:`Scores`."""
        return [self._part(kind, factors, scales[:, number]) for number, kind in enumerate(TASKS)]

    def _part(self, kind: str, factors: Factors, scales: Float64) -> _Part:
        weights = np.array([1.0 if cell.kind == kind else OTHER for cell in self.cells])
        chosen = np.array([cell.kind == kind and cell.column in self.main for cell in self.cells], dtype=bool)
        subset = Factors(*(part[chosen] for part in factors))
        logits, errors = infer(factors, logit(self.scores), weights).predict(subset)
        values, trained = self.scores[:, chosen], self.seen[:, chosen]
        observed = np.isfinite(values)
        names, task = np.unique([cell.task for cell in compress(self.cells, chosen)], return_inverse=True)
        has = [observed[:, task == number].any(axis=1) for number in range(len(names))]
        lacks = ~np.array(has, dtype=bool).reshape(len(names), len(values)).T
        spread = np.sqrt(errors**2 + subset.noise) * np.where(lacks[:, task], scales[1], scales[0])
        filled = np.where(observed, values, score_of(logits))
        by_language: dict[str, dict[str, list[int]]] = {}
        for number, cell in enumerate(compress(self.cells, chosen)):
            by_language.setdefault(cell.language, {}).setdefault(cell.task, []).append(number)
        rows, start = [], TASKS.index(kind) * len(self.place)
        for language, tasks in sorted(by_language.items(), key=lambda item: self.place[item[0]]):
            whole = [observed[:, numbers].all(axis=1) for numbers in tasks.values()]
            on = [w & trained[:, numbers[0]] for w, numbers in zip(whole, tasks.values(), strict=True)]
            means = [np.mean([x[:, c].mean(axis=1) for c in tasks.values()], axis=0) for x in (filled, spread)]
            most = 32767 // _factor(len(tasks)) - 1
            states = np.sum(whole, axis=0) + _factor(len(tasks)) * np.minimum(np.sum(on, axis=0), most)
            rows.append((start + self.place[language], len(tasks), *means, states))
        numbers, counts, *arrays = zip(*rows, strict=True) if rows else ((),) * 5
        tables = (np.array(part).reshape(len(rows), len(values)) for part in arrays)
        return _Part(np.array(numbers, np.intp), np.array(counts, np.int64), *tables)


def _trained(atlas: Atlas, models: Sequence[str], cells: Sequence[Cell]) -> Mask:
    """Whether each model was trained on each cell's task, (models, cells)."""
    tasks, place = np.unique([cell.task for cell in cells], return_inverse=True)
    known = [np.isin(tasks, atlas.models[model].trained_on or ()) for model in models]
    return np.array(known, dtype=bool).reshape(len(models), len(tasks))[:, place]


def _covering(ratios: Sequence[Float64]) -> float:
    """The number of spreads that covers ``COVERED`` of the errors; 2 without errors."""
    pooled = np.concatenate([np.zeros(0), *map(np.ravel, ratios)])
    return max(float(np.quantile(pooled, COVERED)), 0.1) if pooled.size else 2.0


def _scales(evidence: _Evidence) -> tuple[Float64, Float64]:
    """How many spreads cover ``COVERED`` of held-out scores (2, kinds), and the effects of training (kinds,).

    Held out are pairs of models and languages, then of models and tasks with those of the same text.
    """
    rng, count = np.random.default_rng(0), len(evidence.cells)
    truth = evidence.parts(Factors(np.zeros(count), np.zeros((count, 1)), np.ones(count)))
    ratios: list[list[list[Float64]]] = [[[] for _ in TASKS] for _ in range(2)]
    gains: list[list[Float64]] = [[] for _ in TASKS]
    for of_kinds, by in zip(ratios, ("language", "text"), strict=True):
        names, group = np.unique([getattr(cell, by) for cell in evidence.cells], return_inverse=True)
        for _ in range(DRAWS):
            hidden = (rng.random((len(evidence.scores), len(names))) < HIDDEN)[:, group]
            kept = np.where(hidden, np.nan, evidence.scores)
            held_out = evidence._replace(scores=kept).parts(fit(logit(kept)))
            for number, (part, true) in enumerate(zip(held_out, truth, strict=True)):
                (on, had), (still_on, has) = true.counts(), part.counts()
                whole = (had == true.tasks[:, None]) & (has < had)
                lacking = 1 - has / part.tasks[:, None]
                errors = logit(true.scores) - logit(part.scores)
                doubts = np.exp(np.add.outer(*_margins(part.spreads))) * lacking
                of_kinds[number].append(np.abs(errors[whole] / doubts[whole]))
                if by == "text":
                    gains[number].append(np.stack([errors / lacking.clip(0.1), on > still_on])[:, whole])
    effects = [_effect(*np.concatenate(gain, axis=1)) for gain in gains]
    return np.array([[*map(_covering, of_kinds)] for of_kinds in ratios]), np.array(effects)


def _effect(errors: Float64, trained: Float64) -> float:
    """The mean error of the scores on tasks that a model was trained on, less that of the others; 0 without either."""
    on, off = errors[trained == 1], errors[trained == 0]
    return float(on.mean() - off.mean()) if on.size and off.size else 0.0


def scores_of(atlas: Atlas) -> Scores:
    """The table that an atlas holds.

    Raises:
        ResultsError: It holds none, or that of an earlier version.
    """
    scales = atlas.table.get("scales")
    if scales is None or scales.shape != (3, len(TASKS)):
        raise ResultsError("This atlas has no predicted scores of this version; rebuild it with `xalign atlas update`.")
    parts = dict(atlas.table)
    texts = {name: tuple(parts.pop(name).tobytes().decode().split("\n")) for name in ("models", "languages")}
    factors = Factors(*(parts.pop(name).astype(np.float64) for name in ("mean", "loadings", "noise")))
    return Scores(factors=factors, **texts, **parts)  # type: ignore[arg-type]


def with_table(atlas: Atlas, scores: Scores) -> Atlas:
    """The atlas, holding this table."""
    parts = {field.name: getattr(scores, field.name) for field in fields(scores)}
    factors = {name: part.astype(np.float32) for name, part in parts.pop("factors")._asdict().items()}
    texts = {name: np.frombuffer("\n".join(parts[name]).encode(), np.uint8) for name in ("models", "languages")}
    return replace(atlas, table={**parts, **factors, **texts})


def estimate(atlas: Atlas, like: Scores | None = None) -> Scores:
    """The table of an atlas, in half a minute of processor time for the public results.

    Intervals are scaled on held-out scores of the atlas, or as those of ``like``, which is five times as fast.
    """
    models = sorted(atlas.models)
    cells, scores = cells_of(atlas.columns, models)
    languages = sorted({*FLORES_200, *(cell.language for cell in cells)})
    place = {language: number for number, language in enumerate(languages)}
    evidence = _Evidence(cells, scores, _trained(atlas, models, cells), main_columns(atlas.columns), place)
    factors = fit(logit(scores))
    scales, effects = (like.scales[:2], like.effects) if like else _scales(evidence)
    parts = evidence.parts(factors, scales)
    found = _joined(parts)
    known, observed = found.rows, logit(found.scores)
    kinds = [kind for kind in TASKS for _ in languages]
    means = np.stack([logit(part.scores).mean(axis=0) if len(part.rows) else np.zeros(len(models)) for part in parts])
    kriging, errors = relatives.weights(kinds, [*languages] * len(TASKS), known, atlas.named)
    number_of = np.repeat(np.arange(len(TASKS)), len(languages))
    residues = observed - means[number_of[known]]
    logits = means[number_of] + kriging @ residues
    logits[known] = observed
    left, singular, right = np.linalg.svd(logits, full_matrices=False)
    rows = _quantised(left[:, :_RANK] * np.sqrt(singular[:_RANK]))
    coordinates = _quantised(right[:_RANK].T * np.sqrt(singular[:_RANK]))
    margins = [_margins(part.spreads) for part in parts]
    measured = found.counts()[1] == found.tasks[:, None]
    missed = like.scales[2] if like else _left_out(languages, known, atlas.named, residues, measured)
    row_spreads = np.log(missed[number_of] * errors)
    row_spreads[known] = np.concatenate([of_rows for of_rows, _ in margins])
    tasks = np.zeros(len(kinds), np.int16)
    tasks[known] = found.tasks
    residuals, states = _cells(found, rows, coordinates)
    return Scores(
        tuple(models), tuple(languages), factors, tasks, rows, coordinates, residuals, states,
        _quantised(row_spreads), _quantised(np.stack([of_models for _, of_models in margins])), effects,
        np.vstack([scales, missed]),
    )  # fmt: skip


def _joined(parts: Sequence[_Part]) -> _Part:
    return _Part(*map(np.concatenate, zip(*parts, strict=True)))


def _margins(spreads: Float64) -> tuple[Float64, Float64]:
    """Logs of a factor of each row and of each model, whose product is nearest to spreads (rows, models)."""
    if not spreads.size:
        return np.zeros(len(spreads)), np.zeros(spreads.shape[1])
    logs = np.log(spreads)
    return logs.mean(axis=1), logs.mean(axis=0) - logs.mean()


def _cells(found: _Part, rows: Int16, coordinates: Int16) -> tuple[Int16, Int16]:
    """The residuals and states (rows, models) of the rows with data."""
    residuals, states = (np.zeros((len(rows), len(coordinates)), np.int16) for _ in range(2))
    base = score_of(rows[found.rows].astype(np.float64) @ coordinates.T / UNIT**2)
    residuals[found.rows] = np.rint(STEP * (found.scores - base))
    states[found.rows] = found.states
    return residuals, states


def _quantised(values: Float64) -> Int16:
    return np.rint(UNIT * values).clip(-32767, 32767).astype(np.int16)


def _left_out(
    languages: Sequence[str], known: npt.NDArray[np.intp], named: Mapping[str, int], values: Float64, measured: Mask
) -> Float64:
    """How many standard errors cover ``COVERED`` of the measured scores of languages, by kind (kinds,).

    A tenth of the languages is left out at a time. Only languages of FLORES-200 count, as no others are in the table
    without a score. A kind without data has the number of all kinds together.
    """
    numbers, places = np.divmod(known, len(languages))
    kinds, own = [TASKS[number] for number in numbers], [languages[place] for place in places]
    fold = np.random.default_rng(0).integers(0, 10, len(languages))[places]
    ratios: dict[str, list[Float64]] = {kind: [] for kind in TASKS}
    for part in range(10):
        kept, out = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
        if len(kept) and len(out):
            matrix, errors = relatives.weights(kinds, own, kept, named)
            missed = np.abs(values[out] - matrix[out] @ values[kept]) / errors[out, None]
            for row, of_models in zip(out, missed, strict=True):
                if own[row] in FLORES_200:
                    ratios[kinds[row]].append(of_models[measured[row]])
    pooled = [*chain.from_iterable(ratios.values())]
    return np.array([_covering(of_kind or pooled) for of_kind in ratios.values()])


def with_models(scores: Scores, published: Atlas, atlas: Atlas, names: Sequence[str]) -> Scores:
    """The table with more models, or newer scores of some: ``names``, whose cells are those of ``atlas``.

    The factors stay as they were fitted on ``published``, so no other model's score changes. Scores of columns that
    are not published count nowhere.
    """
    cells, _ = cells_of(published.columns, scores.models)
    labels, main = {cell.column for cell in cells}, main_columns(published.columns)
    found, values = cells_of([column for column in atlas.columns if column.label in labels], names, fewest=1)
    order = {cell: number for number, cell in enumerate(cells)}
    there = [cell in order for cell in found]
    places = [order[cell] for cell in compress(found, there)]

    def added(block: slice) -> tuple[npt.NDArray[np.int16], ...]:
        table = np.full((len(names[block]), len(cells)), np.nan)
        table[:, places] = values[block, there]
        evidence = _Evidence(cells, table, _trained(atlas, names[block], cells), main, scores.place)
        parts = evidence.parts(scores.factors, scores.scales)
        whole = _joined(parts)
        rows = scores.rows[whole.rows].astype(np.float64) / UNIT
        coordinates = _quantised(np.asarray(np.linalg.lstsq(rows, logit(whole.scores), rcond=None)[0].T, np.float64))
        logs = [np.log(part.spreads) - scores.row_spreads[part.rows, None] / UNIT for part in parts]
        spreads = [of_kind.mean(axis=0) if len(of_kind) else np.zeros(len(table)) for of_kind in logs]
        residuals, states = _cells(whole, scores.rows, coordinates)
        return coordinates.T, residuals, states, _quantised(np.stack(spreads))

    blocks = [slice(start, start + _BLOCK) for start in range(0, len(names), _BLOCK)]
    coordinates, residuals, states, spreads = map(np.hstack, zip(*map_forked(added, blocks, len(names)), strict=True))
    kept = [row for row, model in enumerate(scores.models) if model not in names]
    return replace(
        scores,
        models=(*(scores.models[row] for row in kept), *names),
        coordinates=np.concatenate([scores.coordinates[kept], coordinates.T]),
        residuals=np.hstack([scores.residuals[:, kept], residuals]),
        states=np.hstack([scores.states[:, kept], states]),
        model_spreads=np.hstack([scores.model_spreads[:, kept], spreads]),
    )
