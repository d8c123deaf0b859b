"""Holds scores out of the atlas and predicts them: ``python -m docs.tools.choose_holdout``.

Writes docs/results/atlas_holdout.csv.

Every part fits the factors anew without what it holds out. Only the number of standard errors of an interval is kept
from the whole table where a part fits dozens of times (first picks, languages); the parts on intervals scale them anew.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from xalign_models.atlas import Atlas, Column, load_atlas
from xalign_models.atlas.choose import Wish, choose
from xalign_models.atlas.factors import LEAST, MOST, SAME_TEXT, Cell, cells_of, fit, infer, logit, score_of
from xalign_models.atlas.scores import estimate, main_columns, scores_of, with_table
from xalign_models.atlas.statistics import rank_groups
from xalign_models.atlas.table import TASKS
from xalign_models.languages import canonical

OUTPUT = Path(__file__).parents[1] / "results" / "atlas_holdout.csv"
SETS = (
    "sw,te,yo de,fr,es hi,bn,ta zh,ja,ko ar,fa,ur ru,uk,pl fi,et,hu id,ms,tl vi,th,km am,so,om ha,ig,yo zu,xh,sn "
    "ka,hy,az kk,ky,uz is,da,nb cy,ga,eu ro,el,bg he,tr,ar gu,pa,mr sw"
).split()
FEWEST = 10
"""Models with a score that a case needs."""
HIDDEN = 0.1
"""Share of the pairs that are held out."""
SEEDS = range(2, 7)
"""Draws of the pairs that test intervals: with few tasks of a kind, one draw of missing tasks says little."""
Row = tuple[str, str, str, float]
"""Part, who or what, measure, value."""


def without(atlas: Atlas, hides: Callable[[Column], np.ndarray]) -> Atlas:
    """The atlas with the scores (models, languages, kinds) hidden for which ``hides(column)`` is true."""
    columns = tuple(replace(column, scores=np.where(hides(column), np.nan, column.scores)) for column in atlas.columns)
    return replace(atlas, columns=columns, table={})


def pairs(atlas: Atlas, by: str, seed: int) -> Callable[[Column], np.ndarray]:
    """Hides a tenth of the pairs of models and languages, or of models and tasks with those of the same text."""
    rng = np.random.default_rng(seed)
    groups = {task: number for number, tasks in enumerate(task_groups(atlas)) for task in tasks}
    models, languages = sorted(atlas.models), sorted({code for column in atlas.columns for code in column.languages})
    hidden = rng.random((len(models), len(languages) if by == "language" else len(groups))) < HIDDEN

    def hides(column: Column) -> np.ndarray:
        rows = np.searchsorted(models, column.models)
        if by == "language":
            return hidden[np.ix_(rows, np.searchsorted(languages, column.languages))][:, :, None]
        return hidden[rows, groups[column.task]][:, None, None]

    return hides


def task_groups(atlas: Atlas) -> list[list[str]]:
    """Tasks that are held out together."""
    groups: dict[str, list[str]] = {}
    for task in dict.fromkeys(column.task for column in atlas.columns):
        groups.setdefault(SAME_TEXT.get(task, task), []).append(task)
    return [*groups.values()]


def predicted(atlas: Atlas) -> Iterator[Row]:
    """Mean errors of held-out cells in points, beside the mean of the cell and an additive fit."""
    models = sorted(atlas.models)
    cells, scores = cells_of(atlas.columns, models)
    kinds = np.array([cell.kind for cell in cells])
    for by in ("language", "task"):
        kept_cells, found = cells_of(without(atlas, pairs(atlas, by, 1)).columns, models, fewest=1)
        order = {cell: place for place, cell in enumerate(kept_cells)}
        kept = np.stack(
            [found[:, order[cell]] if cell in order else np.full(len(models), np.nan) for cell in cells], axis=1
        )
        logits = logit(kept)
        factors = fit(logits)
        guesses = {"factors": score_of(infer(factors, logits).predict(factors)[0]), **simple(logits)}
        hidden = np.isfinite(scores) & np.isnan(kept)
        for name, guess in guesses.items():
            errors = 100 * np.abs(guess - scores)
            yield f"model x {by}", "all", name, float(errors[hidden].mean())
            for kind in TASKS if name == "factors" else ():
                yield f"model x {by}", kind, name, float(errors[hidden & (kinds == kind)].mean())


def simple(logits: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions by the mean of a cell, and by an additive fit of models and cells."""
    observed, quality = np.isfinite(logits), np.zeros(len(logits))
    values = np.where(observed, logits, 0)
    means = values.sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
    level = means
    for _ in range(20):
        quality = (values - observed * level).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
        level = (values - observed * quality[:, None]).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
    return {"cell mean": score_of(np.tile(means, (len(logits), 1))), "additive": score_of(quality[:, None] + level)}


def intervals(atlas: Atlas) -> Iterator[Row]:
    """How many 90% intervals of the table cover the whole measured score, and their median width in points."""
    whole, found = scores_of(atlas), []
    ages = np.array([(atlas.models[model].release_date or "") < "2025" for model in whole.models])
    for by, seed in product(("language", "task"), SEEDS):
        kept = estimate(without(atlas, pairs(atlas, by, seed)))
        for kind, code in product(TASKS, whole.languages):
            tasks = whole.count(kind, code)
            if not tasks or code not in kept.place:
                continue
            truth, guess = whole.row(kind, code), kept.row(kind, code)
            columns = {"covers": covered(truth, guess), "width": 100 * (guess.high - guess.low), "old": ages}
            held = (truth.measured == tasks) & (guess.measured < kept.count(kind, code))
            found.append(pd.DataFrame(columns)[held].assign(kind=kind, rare=atlas.low_resource(code), by=by))
    table = pd.concat(found)
    groups = {"all": table} | {kind: table[table["kind"] == kind] for kind in TASKS}
    groups |= {"rarely named": table[table["rare"]], "often named": table[~table["rare"]]}
    groups |= {"released before 2025": table[table["old"]], "released since 2025": table[~table["old"]]}
    for by, part in table.groupby("by"):
        groups[f"missing {by}"] = part
        groups |= {f"missing {by}, {kind}": part[part["kind"] == kind] for kind in TASKS}
    for name, part in groups.items():
        yield "intervals", name, "coverage", 100 * float(part["covers"].mean())
        yield "intervals", name, "width", float(part["width"].median())
        yield "intervals", name, "scores", len(part)


def covered(truth: Any, guess: Any) -> np.ndarray:
    """Whether the interval of each model (models,) has its true score."""
    return (guess.low <= truth.score) & (truth.score <= guess.high)


def first_picks(atlas: Atlas) -> Iterator[Row]:
    """Points that the first pick loses on a task that was left out with those of the same text, beside baselines."""
    like, losses = scores_of(atlas), []
    for group in task_groups(atlas):
        kept = replace(atlas, columns=tuple(column for column in atlas.columns if column.task not in group), table={})
        kept = with_table(kept, estimate(kept, like))
        scores = scores_of(kept)
        held = [column for column in atlas.columns if column.task in group]
        for codes, kind in product(SETS, dict.fromkeys(column.kind for column in held)):
            wanted = tuple(map(canonical, codes.split(",")))
            fits = (2 * len({*wanted} & {*column.languages}) >= len(wanted) for column in held)
            cases = [column for column, fit in zip(held, fits, strict=True) if fit and column.kind == kind]
            if not cases or not any(scores.count(kind, code) for code in wanted if code in scores.place):
                continue
            truth = max((task_scores(column, wanted) for column in cases), key=len)
            if len(truth) >= FEWEST:
                orders = {"choose": [one.model for one in choose(kept, Wish(wanted, kind)).candidates]}
                orders |= baselines(kept, kind, wanted)
                losses.append({"task": group[0]} | {name: loss(order, truth) for name, order in orders.items()})
    table = pd.DataFrame(losses).set_index("task").sort_index(axis=1)
    yield "first pick", "all", "cases", len(table)
    summary = {"mean": table.mean(), "median": table.median(), "90%": table.quantile(0.9)}
    for name, (measure, values) in product(table.columns, summary.items()):
        yield "first pick", name, measure, float(values[name])
    best = summary["mean"].drop("choose").idxmin()
    gain = table["choose"] - table[best]
    of_task = gain.groupby("task").agg(["sum", "size"]).to_numpy()
    drawn = of_task[np.random.default_rng(0).choice(len(of_task), (2000, len(of_task)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    for measure, value in (("difference", gain.mean()), ("low", low), ("high", high)):
        yield "first pick", f"less {best}", measure, float(value)


def task_scores(column: Column, languages: Collection[str]) -> dict[str, float]:
    """The mean score in some languages of each model that has them all."""
    places = [place for place, code in enumerate(column.languages) if code in languages]
    cells = column.scores[:, places][:, column.counts[places] > 0]
    means = cells.mean(axis=1) if cells.size else np.full(len(column.models), np.nan)
    return {model: float(mean) for model, mean in zip(column.models, means, strict=True) if np.isfinite(mean)}


def loss(order: list[str], truth: dict[str, float]) -> float:
    """Points that the first of an order with a true score is below the best."""
    first = next(model for model in [*order, *truth] if model in truth)
    return 100 * (max(truth.values()) - truth[first])


@lru_cache(maxsize=2)
def ranked_cells(atlas: Atlas) -> tuple[list[str], list[Cell], np.ndarray, np.ndarray]:
    """Models, cells, scores (models, cells), and each score's rank in its cell as a share."""
    models = sorted(atlas.models)
    cells, scores = cells_of(atlas.columns, models)
    return models, cells, scores, rankdata(scores, axis=0, nan_policy="omit") / np.isfinite(scores).sum(axis=0)


def baselines(atlas: Atlas, kind: str, languages: tuple[str, ...]) -> dict[str, list[str]]:
    """Orders of the models by simple rules."""
    models, cells, scores, ranks = ranked_cells(atlas)
    of_kind = np.array([cell.kind == kind for cell in cells])
    spoken = np.array([cell.language in languages for cell in cells])
    about = [atlas.models[model] for model in models]
    values = {
        "percentile, kind and languages": _mean(ranks[:, of_kind & spoken]),
        "percentile, kind": _mean(ranks[:, of_kind]),
        "percentile, languages": _mean(ranks[:, spoken]),
        "percentile, all": _mean(ranks),
        "mean score": _mean(scores),
        "largest": np.array([model.parameters or 0 for model in about], dtype=float),
        "newest": np.array([float((model.release_date or "0").replace("-", "").ljust(8, "0")) for model in about]),
        "random": np.random.default_rng(len(cells)).random(len(models)),
    }
    return {name: [models[row] for row in np.argsort(-value, kind="stable")] for name, value in values.items()}


def _mean(values: np.ndarray) -> np.ndarray:
    return np.ma.masked_invalid(values).mean(axis=1).filled(-1)


def languages(atlas: Atlas) -> Iterator[Row]:
    """Points that the first pick loses, and errors of predictions, in languages left out a tenth at a time."""
    whole = scores_of(atlas)
    codes = [code for code in whole.languages if any(whole.count(kind, code) for kind in TASKS)]
    fold = dict(zip(codes, np.random.default_rng(3).integers(0, 10, len(codes)), strict=True))
    lost: dict[str, list[tuple[float, float]]] = defaultdict(list)
    errors: dict[str, list[np.ndarray]] = defaultdict(list)
    for part in range(10):
        out = [code for code in codes if fold[code] == part]
        kept = without(atlas, lambda column, out=out: np.isin(column.languages, out)[None, :, None])
        kept = with_table(kept, estimate(kept, whole))
        scores = scores_of(kept)
        averages = {kind: baselines(kept, kind, ())["percentile, kind"] for kind in TASKS}
        for kind, code in product(TASKS, out):
            if code not in scores.place or not whole.count(kind, code):
                continue
            truth, guess = whole.row(kind, code), scores.row(kind, code)
            done = truth.measured == whole.count(kind, code)
            true = {whole.models[row]: float(truth.score[row]) for row in np.flatnonzero(done)}
            if len(true) >= FEWEST:
                ranked = [scores.models[row] for row in np.argsort(-guess.cautious, kind="stable")]
                lost[kind].append((loss(ranked, true), loss(averages[kind], true)))
                error = np.abs(guess.score - truth.score)
                errors[kind].append(100 * np.stack([error, covered(truth, guess)])[:, done])
    lost["all"], errors["all"] = ([*chain.from_iterable(of.values())] for of in (lost, errors))
    for kind in ("all", *filter(lost.__contains__, TASKS)):
        names = "points lost", "by percentile, kind", "error", "coverage"
        values = *np.mean(lost[kind], axis=0), *np.concatenate(errors[kind], axis=1).mean(axis=1)
        for measure, value in zip(("languages", *names), (len(lost[kind]), *values), strict=True):
            yield "new language", kind, measure, float(value)


def other_revisions(atlas: Atlas) -> Iterator[Row]:
    """Ten cells of models that were never scored on a text, beside what they have on its other revision."""
    rng, main = np.random.default_rng(4), main_columns(atlas.columns)
    cases = []
    for task, count in (("NTREXBitextMining", 4), ("BelebeleRetrieval", 3), ("IN22GenBitextMining", 3)):
        column = next(c for c in atlas.columns if c.task == task and c.label not in main)
        known = np.isfinite(column.scores[:, :, 1:3])
        whole = np.flatnonzero(known.sum(axis=(1, 2)) == known.any(axis=0).sum())
        for row in rng.choice(whole, count, replace=False):
            places = [place for place, code in enumerate(column.languages) if code != "eng-Latn"]
            cases.append((column, column.models[row], column.languages[rng.choice(places)]))
    chosen, tasks = [model for _, model, _ in cases], {column.task for column, *_ in cases}
    kept = without(atlas, lambda of: (np.isin(of.models, chosen) & (of.task in tasks))[:, None, None])
    models = sorted(atlas.models)
    cells, scores = cells_of(kept.columns, models)
    factors = fit(logit(scores))
    guess, error = infer(factors, logit(scores)).predict(factors)
    spread = np.sqrt(error**2 + factors.noise)
    table = scores_of(atlas)
    hits, gaps = [], []
    for column, model, code in cases:
        found = (cell.task == column.task and cell.column in main and cell.language == code for cell in cells)
        place, at = [*found].index(True), column.languages.index(code)
        own = [kind for kind in ((0,), (1, 2), (3, 4))[cells[place].pairing] if column.counts[at, kind] > 0]
        truth = float(column.scores[column.row[model], at, own].mean())
        row, width = models.index(model), table.scales[1, TASKS.index(column.kind)]
        ends = [float(score_of(guess[row, place] + side * width * spread[row, place])) for side in (-1, 0, 1)]
        ends[0], ends[2] = ends[0] * (ends[0] >= LEAST), max(ends[2], float(ends[2] > MOST))
        hits.append(ends[0] <= truth <= ends[2])
        gaps.append(100 * abs(ends[1] - truth))
        for measure, value in zip(("low", "predicted", "high", "other revision"), (*ends, truth), strict=True):
            yield "other revision", f"{model} {column.task} {code}", measure, 100 * value
    yield "other revision", "all", "error", float(np.mean(gaps))
    yield "other revision", "all", "covered", int(np.sum(hits))


def equal_models(_: Atlas) -> Iterator[Row]:
    """How often 30 equal models on 120 languages are split into several rank groups."""
    rng = np.random.default_rng(5)
    names = [f"m{number}" for number in range(30)]
    tables = (rng.normal(size=(1, 120)) + rng.normal(0, 0.5, (30, 120)) for _ in range(400))
    split = [rank_groups(names, table, draws=10)[-1].group > 1 for table in tables]
    yield "equal models", "all", "split", 100 * float(np.mean(split))


PARTS = (predicted, intervals, other_revisions, equal_models, languages, first_picks)


def main() -> None:
    """Print all figures and write them; names of parts print these alone."""
    atlas = load_atlas()
    rows = []
    parts = [part for part in PARTS if part.__name__ in sys.argv[1:]] or PARTS
    for *labels, value in chain.from_iterable(part(atlas) for part in parts):
        rows.append((*labels, f"{value:.2f}"))
        print(*rows[-1], sep="\t", flush=True)
    if parts is PARTS:
        columns = ["part", "of", "measure", "value"]
        pd.DataFrame(rows, columns=columns).to_csv(OUTPUT, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
