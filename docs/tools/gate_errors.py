"""How often the gate is wrong and how often it decides, by simulation: ``python -m docs.tools.gate_errors``.

It writes ``docs/results/gate/errors.csv``, from which tables of ``docs/ci.md`` are made, in half an hour, and
``dependence.csv`` beside it: how much neighbouring items of the committed results depend on each other.
Each cell has reports of one language, or of 22 and their mean, at a tolerance of one point. Answers are right or wrong.
``shared`` is the fraction of the changes that all languages have in common, and ``together`` the number of neighbours
that change together, as do copies of a sentence. ``former`` is the rule before the score
tests: a Wald interval for a pass, and a test of no fall, with Holm's correction, for a fail.
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom, norm

from docs.tools.sources import ROOT
from xalign_models.results.items import outcomes_path, read_outcomes
from xalign_models.results.proportions import Fall, Z, score
from xalign_models.results.reading import read_results
from xalign_models.results.significance import ALPHA, MANY, design_effect, effect_of_changes

FILE = ROOT / "docs" / "results" / "gate" / "errors.csv"
DEPENDENCE = FILE.with_name("dependence.csv")
TOLERANCE = 0.01
ITEMS, LANGUAGES, CHURNS, SHARED = (20, 50, 100, 300, 1000, 2000, 5000), (1, 22), (0.0, 0.01, 0.04, 0.1), (0.0, 0.5)
TOGETHER = (1, 2, 5)
FALLS = {"edge": TOLERANCE, "same": 0.0, "fallen": 3 * TOLERANCE}
RIGHT = 0.8
"""Fraction of the answers that were right."""
REPORTS = 20_000
Array = npt.NDArray[np.float64]


class Cell(NamedTuple):
    """A setting of the simulation."""

    items: int
    languages: int
    churn: float
    shared: float = 0.0
    together: int = 1


def _former(fall: Fall) -> tuple[Array, Array]:
    """P of no fall and upper bound of the fall, as the gate had them."""
    total, squares, cubes, share = map(np.asarray, fall)
    moved, difference = np.rint(squares / share**2), np.rint(total / share)
    exact = binom.sf((moved + difference) / 2 - 1, moved, 0.5)  # McNemar's
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(squares > 0, np.minimum(1, 3.179 * norm.sf(total / np.sqrt(squares))), 1)
    p = np.where(np.abs(squares * share - cubes) <= 1e-9 * cubes, exact, bound)
    return np.where(total > TOLERANCE, p, 1.0), total + Z * np.sqrt(np.maximum(squares - total**2 * share, 0))


def _verdicts(fall: Fall, effect: Array, former: bool) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows (reports, rows) pass, and which reports (reports,) fail; the last row of several is the mean."""
    rows = np.shape(fall.total)[1]
    z = score(fall.with_effect(effect), TOLERANCE)
    p, passed = norm.sf(z), z <= -Z
    weights = np.array([*np.ones(rows - 1), max(rows - 1, 1)])
    if former:
        p, high = _former(fall)
        passed, weights = high <= TOLERANCE + 1e-9, np.ones(rows)
    return passed, (p / weights).min(axis=1) * weights.sum() < ALPHA  # the first step of Holm's method


def _falls(u: npt.NDArray[np.float32], level: npt.NDArray[np.float32], churn: float, fall: float) -> tuple[Fall, Array]:
    """Falls and design effects (reports, rows) of answers (reports, languages, items) that ``u`` changes.

    An answer was right if ``level`` is below :data:`RIGHT`, or if it is lost.
    """
    churn = max(churn, fall)
    lost, won = u < (churn + fall) / 2, u > 1 - (churn - fall) / 2
    return _moments(_with_mean(lost.astype(np.int8) - won), _with_mean(lost | (level < RIGHT) & ~won))


def _with_mean(answers: npt.NDArray[Any]) -> Array:
    rows = answers.astype(np.float64)
    return np.concatenate([rows, rows.mean(axis=1)[:, None]], axis=1) if rows.shape[1] > 1 else rows


def _moments(lost: Array, right: Array) -> tuple[Fall, Array]:
    """Falls and design effects of rows (..., items) by what each item lost and by its former outcome."""
    n, sizes = lost.shape[-1], np.abs(lost)
    effect = effect_of_changes(*(rows - rows.mean(axis=-1, keepdims=True) for rows in (lost, right)))
    squares, cubes = ((sizes**power).sum(axis=-1) / n**power for power in (2, 3))
    return Fall(lost.mean(axis=-1), squares, cubes, 1 / n), effect


def _wrong_passes(cell: Cell) -> dict[bool, float]:
    """Percent of 20,000 means at the edge that pass, by the present and the former rule."""
    items, languages, churn, shared, together = cell
    churn = max(churn, TOLERANCE)
    one = np.array([churn - TOLERANCE, 2 - 2 * churn, churn + TOLERANCE]) / 2  # won, kept, lost
    chances, values = np.ones(1), np.arange(-languages, languages + 1) / languages
    for _ in range(languages):
        chances = np.convolve(chances, one)
    chances *= 1 - shared
    chances[[0, languages, -1]] += shared * one
    rng, chunk, passed = np.random.default_rng(items), min(1 + 2_000_000 // items, REPORTS), {False: 0, True: 0}
    for size in [*[chunk] * (REPORTS // chunk), REPORTS % chunk]:
        drawn = size, -(-items // together)
        lost = values[np.searchsorted(np.cumsum(chances)[:-1], rng.random(drawn, dtype=np.float32))]
        right = rng.binomial(languages, RIGHT, drawn) / languages
        lost, right = (np.repeat(rows, together, axis=1)[:, None, :items] for rows in (lost, np.maximum(right, lost)))
        for former in passed:
            passed[former] += int(_verdicts(*_moments(lost, right), former)[0].sum())
    return {former: 100 * count / REPORTS for former, count in passed.items()}


def rates(cell: Cell, reports: int) -> Iterator[dict[str, float | str]]:
    """Rates of the present and the former rule in percent.

    Keys: ``wrong_pass``, the row of the mean (or of the one language) passes though all fell by the tolerance;
    ``wrong_fail``, the report fails though none fell by more; ``passes`` and ``mean_passes``, the report or its mean
    passes where nothing fell; ``finds``, the report fails where all fell by three tolerances.
    """
    items, languages, churn, shared, together = cell
    rng = np.random.default_rng([items, languages, round(1000 * churn), round(10 * shared)])
    chunk = max(1, min(reports, 1_000_000 // (items * languages)))
    seen: dict[tuple[bool, str], list[npt.NDArray[np.bool_]]] = {}
    for _ in range(-(-reports // chunk)):
        u, level = rng.random((2, chunk, languages, -(-items // together)), dtype=np.float32)
        u = np.where(rng.random(u[:, :1].shape) < shared, u[:, :1], u)
        u, level = (np.repeat(rows, together, axis=2)[..., :items] for rows in (u, level))
        for name, fall in FALLS.items():
            moments = _falls(u, level, churn, fall)
            for former in (False, True):
                passed, failed = _verdicts(*moments, former)
                seen.setdefault((former, name), []).append(np.stack([passed.all(axis=1), passed[:, -1], failed]))
    wrong = _wrong_passes(cell)
    for former in (False, True):
        percent = {name: 100 * np.concatenate(seen[former, name], axis=1).mean(axis=1) for name in FALLS}
        found = {"wrong_pass": wrong[former], "wrong_fail": percent["edge"][2]}
        found |= {"passes": percent["same"][0], "mean_passes": percent["same"][1], "finds": percent["fallen"][2]}
        yield {
            "rule": "former" if former else "score",
            **cell._replace(churn=100 * churn)._asdict(),
            **{key: round(v, 2) for key, v in found.items()},
        }


def dependence(task: str, models: int = 10) -> dict[str, float | str]:
    """Median design effects of a task's committed outcomes and of their differences between two models.

    Only differences of 50 items or more count, in a language or pair of languages of 100 or more.
    """
    results = read_results(ROOT / "results", tasks=[task])
    chosen = np.random.default_rng(0).permutation(results.models)[:models]
    tables = [results.tables[model, task] for model in chosen if (model, task) in results.tables]
    outcomes = [read_outcomes(outcomes_path(table.folder, task), table.values()) for table in tables]
    items, found = 0, dict[str, list[float]](outcomes=[], differences=[])
    for one, other in combinations(outcomes, 2):
        for subset in sorted(one.keys() & other.keys())[:: max(1, len(one) // 6)]:
            rows = [side[subset].astype(np.float64) for side in (one, other)]
            if len(rows[0]) == len(rows[1]) >= 100 and np.count_nonzero(rows[0] - rows[1]) >= MANY:
                for name, row in {"outcomes": rows[0], "differences": rows[0] - rows[1]}.items():
                    found[name].append(float(design_effect(row - row.mean())))
                items = max(items, len(rows[0]))
    return {"task": task, "items": items, **{name: round(float(np.median(e)), 2) for name, e in found.items() if e}}


def main() -> None:
    """Write both tables."""
    tasks = read_results(ROOT / "results").tasks
    pd.DataFrame([dependence(task) for task in tasks]).dropna().to_csv(DEPENDENCE, index=False, lineterminator="\n")
    cells = [Cell(*cell) for cell in product(ITEMS, LANGUAGES, CHURNS, SHARED, TOGETHER)]
    chosen = [cell for cell in cells if not (cell.shared if cell.languages == 1 else cell.together > 1)]
    table = [row for cell in chosen for row in rates(cell, reports=2000 if cell.languages > 1 else REPORTS)]
    FILE.write_text(pd.DataFrame(table).to_csv(index=False, lineterminator="\n", float_format="%g"), encoding="utf-8")


if __name__ == "__main__":
    main()
