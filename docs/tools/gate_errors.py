"""How often the gate is wrong and how often it decides, by simulation: ``python -m docs.tools.gate_errors``.

It writes ``docs/results/gate/errors.csv``, from which the tables of ``docs/ci.md`` are made, in a few minutes.
Each cell has reports of one language, or of 22 and their mean, at a tolerance of one point. Answers are right or wrong.
``shared`` is the fraction of the changes that all languages have in common. ``former`` is the rule before the score
tests: a Wald interval for a pass, and a test of no fall, with Holm's correction, for a fail.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom, norm

from docs.tools.sources import ROOT
from xalign_models.results.proportions import Fall, Z, score
from xalign_models.results.significance import ALPHA

FILE = ROOT / "docs" / "results" / "gate" / "errors.csv"
TOLERANCE = 0.01
ITEMS, LANGUAGES, CHURNS, SHARED = (20, 50, 100, 300, 1000, 2000, 5000), (1, 22), (0.0, 0.01, 0.04, 0.1), (0.0, 0.5)
FALLS = {"edge": TOLERANCE, "same": 0.0, "fallen": 3 * TOLERANCE}
Array = npt.NDArray[np.float64]


def _former(fall: Fall) -> tuple[Array, Array]:
    """P of no fall and upper bound of the fall, as the gate had them."""
    total, squares, cubes, share = map(np.asarray, fall)
    moved, difference = np.rint(squares / share**2), np.rint(total / share)
    exact = binom.sf((moved + difference) / 2 - 1, moved, 0.5)  # McNemar's
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(squares > 0, np.minimum(1, 3.179 * norm.sf(total / np.sqrt(squares))), 1)
    p = np.where(np.abs(squares * share - cubes) <= 1e-9 * cubes, exact, bound)
    return np.where(total > TOLERANCE, p, 1.0), total + Z * np.sqrt(np.maximum(squares - total**2 * share, 0))


def _verdicts(fall: Fall, former: bool) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows (reports, rows) pass, and which reports (reports,) fail; the last row of several is the mean."""
    rows = np.shape(fall.total)[1]
    z = score(fall, TOLERANCE)
    p, passed = norm.sf(z), z <= -Z
    weights = np.array([*np.ones(rows - 1), max(rows - 1, 1)])
    if former:
        p, high = _former(fall)
        passed, weights = high <= TOLERANCE + 1e-9, np.ones(rows)
    return passed, (p / weights).min(axis=1) * weights.sum() < ALPHA  # the first step of Holm's method


def _falls(u: npt.NDArray[np.float32], common: npt.NDArray[np.bool_], churn: float, fall: float) -> Fall:
    """Falls (reports, rows) of answers that ``u`` (reports, languages, items) changes; ``common`` as in language 0."""
    churn = max(churn, fall)
    u = np.where(common[:, None, :], u[:, :1], u)
    moves = (u < (churn + fall) / 2).astype(np.int8) - (u > 1 - (churn - fall) / 2)
    n, languages = moves.shape[2], moves.shape[1]
    rows = moves.astype(np.float32)
    if languages > 1:
        rows = np.concatenate([rows, moves.mean(axis=1, dtype=np.float32)[:, None]], axis=1)
    sizes = np.abs(rows)
    sums = (rows.sum(axis=2), (sizes**2).sum(axis=2), (sizes**3).sum(axis=2))
    return Fall(*(np.asarray(total, np.float64) / n**power for power, total in enumerate(sums, 1)), 1 / n)


def _wrong_pass(cell: tuple[int, int, float, float], former: bool) -> float:
    """Percent of 100,000 means at the edge that pass: their items are counts of the values that a mean can have."""
    items, languages, churn, shared = cell
    churn = max(churn, TOLERANCE)
    one = np.array([churn - TOLERANCE, 2 - 2 * churn, churn + TOLERANCE]) / 2  # won, kept, lost
    chances, values = np.ones(1), np.arange(-languages, languages + 1) / languages
    for _ in range(languages):
        chances = np.convolve(chances, one)
    chances *= 1 - shared
    chances[[0, languages, -1]] += shared * one
    counts = np.random.default_rng(items).multinomial(items, chances, 100_000)
    sums = (counts @ values, counts @ values**2, counts @ np.abs(values) ** 3)
    fall = Fall(*(total[:, None] / items**power for power, total in enumerate(sums, 1)), 1 / items)
    return 100 * float(_verdicts(fall, former)[0].mean())


def rates(items: int, languages: int, churn: float, shared: float, reports: int) -> Iterator[dict[str, float | str]]:
    """Rates of the present and the former rule in percent.

    Keys: ``wrong_pass``, the row of the mean (or of the one language) passes though all fell by the tolerance;
    ``wrong_fail``, the report fails though none fell by more; ``passes`` and ``mean_passes``, the report or its mean
    passes where nothing fell; ``finds``, the report fails where all fell by three tolerances.
    """
    rng = np.random.default_rng([items, languages, round(1000 * churn), round(10 * shared)])
    chunk = max(1, min(reports, 2_000_000 // (items * languages)))
    seen: dict[tuple[bool, str], list[npt.NDArray[np.bool_]]] = {}
    for _ in range(-(-reports // chunk)):
        u = rng.random((chunk, languages, items), dtype=np.float32)
        common = rng.random((chunk, items), dtype=np.float32) < shared
        for (name, fall), former in product(FALLS.items(), (False, True)):
            passed, failed = _verdicts(_falls(u, common, churn, fall), former)
            seen.setdefault((former, name), []).append(np.stack([passed.all(axis=1), passed[:, -1], failed]))
    cell = {"items": items, "languages": languages, "churn": 100 * churn, "shared": shared}
    for former in (False, True):
        percent = {name: 100 * np.concatenate(seen[former, name], axis=1).mean(axis=1) for name in FALLS}
        found = {"wrong_pass": _wrong_pass((items, languages, churn, shared), former), "wrong_fail": percent["edge"][2]}
        found |= {"passes": percent["same"][0], "mean_passes": percent["same"][1], "finds": percent["fallen"][2]}
        yield {"rule": "former" if former else "score", **cell, **{key: round(v, 2) for key, v in found.items()}}


def main() -> None:
    """Write the table."""
    cells = [cell for cell in product(ITEMS, LANGUAGES, CHURNS, SHARED) if cell[1] > 1 or cell[3] == 0]
    table = [row for cell in cells for row in rates(*cell, reports=2000 if cell[1] > 1 else 20_000)]
    FILE.write_text(pd.DataFrame(table).to_csv(index=False, lineterminator="\n", float_format="%g"), encoding="utf-8")


if __name__ == "__main__":
    main()
