"""How often the board's intervals cover the truth: ``python -m docs.tools.coverage``.

Scores are drawn by language and sentence with a known mean. The table has the share of 95% intervals that cover it, by
number of languages, for the board's own method, for Student's t over the languages' means and for the two-way
percentile bootstrap. With ``xalign_models.results.intervals.FEWEST`` languages or more, the board's method covers the
truth in 92% to 97% of the trials of every design.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import sem, t

from docs.tools.sources import ROOT
from xalign_models.results.intervals import Sample, estimate
from xalign_models.results.significance import ALPHA

TABLE = ROOT / "docs" / "results" / "coverage.csv"
LANGUAGES = (4, 6, 8, 10, 12, 14, 16, 18, 22, 29, 36)
SENTENCES = 200
COMPARED = 500
"""Number of trials in which the board's method is compared with the others."""


@dataclass(frozen=True)
class Design:
    """The parts of a score; the standard deviation of a single score is 1 beside these.

    Attributes:
        name: Name in the table.
        language: Standard deviation of the languages' effects.
        sentence: Standard deviation of the sentences' effects.
        skew: Skewness of the languages' effects.
        unequal: Whether languages have a quarter to all of the sentences instead of all.
        pairs: Whether a score is of an ordered pair of languages, with an effect of each.
        hits: Whether a score is 1 or 0, with the sum of effects and 2 as its log-odds.
        together: Number of neighbouring sentences that have one effect, as in one paragraph.
    """

    name: str
    language: float
    sentence: float
    skew: float = 0.0
    unequal: bool = False
    pairs: bool = False
    hits: bool = False
    together: int = 1


DESIGNS = (
    Design("languages alike", 0.0, 0.3),
    Design("languages differ little", 0.1, 0.3),
    Design("languages differ", 0.5, 0.3, unequal=True),
    Design("sentences differ most", 0.05, 1.0, unequal=True),
    Design("skewed", 0.5, 0.3, skew=1.0, unequal=True),
    Design("very skewed", 0.5, 0.3, skew=2.0, unequal=True),
    Design("very skewed, little", 0.15, 0.3, skew=2.0),
    Design("hits", 0.5, 0.5, hits=True),
    Design("pairs of languages", 0.5, 0.3, skew=1.0, pairs=True),
    Design("neighbours alike", 0.1, 0.5, together=2),
)


def effects(design: Design, count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """(count,) effects of languages: normal, or of a gamma distribution if they are skewed."""
    if not design.skew:
        return design.language * rng.normal(size=count)
    shape = 4 / design.skew**2
    drawn = rng.gamma(shape, size=count)
    return np.asarray(design.language * (drawn - shape) / np.sqrt(shape))


def draw(
    design: Design, count: int, rng: np.random.Generator
) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.float64]]]:
    """The languages and the scores (n,) of each subset."""
    names = [f"l{place}" for place in range(count)]
    by_group = design.sentence * rng.normal(size=-(-SENTENCES // design.together))
    of_sentence = np.repeat(by_group, design.together)[:SENTENCES]
    first, second = effects(design, count, rng), effects(design, count, rng)
    for i, j in np.ndindex(count, count if design.pairs else 1):
        if design.pairs and i == j:
            continue
        level = of_sentence + first[i] + (second[j] if design.pairs else 0)
        scores = (
            rng.random(SENTENCES) < 1 / (1 + np.exp(-2 - level)) if design.hits else level + rng.normal(size=SENTENCES)
        )
        kept = rng.integers(SENTENCES // 4, SENTENCES + 1) if design.unequal else SENTENCES
        yield (names[i], names[j]) if design.pairs else (names[i],), scores[:kept].astype(np.float64)


def truth(design: Design) -> float:
    """The mean over all languages and sentences."""
    if not design.hits:
        return 0.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = np.hypot(design.language, design.sentence)
    return float(weights @ (1 / (1 + np.exp(-2 - spread * nodes))) / weights.sum())


def bootstrap(table: npt.NDArray[np.float64], rng: np.random.Generator, times: int = 400) -> tuple[float, float]:
    """The percentile interval over languages and sentences, both drawn anew, from scores (L, n) with NaN for none."""
    rows, columns = (rng.multinomial(size, np.full(size, 1 / size), times) for size in table.shape)
    means = (np.nan_to_num(table) @ columns.T) / np.maximum(np.isfinite(table) @ columns.T, 1)  # (L, times)
    return tuple(np.quantile((rows.T * means).sum(axis=0) / len(table), [ALPHA / 2, 1 - ALPHA / 2]))


def coverage(design: Design, count: int, trials: int, *, compared: int = COMPARED, seed: int = 0) -> dict[str, float]:
    """Percent of intervals that cover the truth, by method; the others than the board's know no pairs."""
    rng, mean = np.random.default_rng(seed), truth(design)
    covered: dict[str, list[bool]] = {"board": [], "student": [], "bootstrap": []}
    for trial in range(trials):
        drawn = {str(place): subset for place, subset in enumerate(draw(design, count, rng))}
        sample = Sample.of(
            {key: scores for key, (_, scores) in drawn.items()}, {key: codes for key, (codes, _) in drawn.items()}
        )
        board = estimate(sample, fewest=0)
        covered["board"].append(board.low <= mean <= board.high)
        if design.pairs or trial >= compared:
            continue
        table = np.full((count, SENTENCES), np.nan)
        for row, (_, scores) in zip(table, drawn.values(), strict=True):
            row[: len(scores)] = scores
        student = t.interval(1 - ALPHA, count - 1, sample.languages.mean(), sem(sample.languages))
        for method, (low, high) in {"student": student, "bootstrap": bootstrap(table, rng)}.items():
            covered[method].append(bool(low <= mean <= high))
    return {method: 100 * float(np.mean(hits)) for method, hits in covered.items() if hits}


def main(trials: int = 3000) -> None:
    """Write the table."""
    rows = [
        {**asdict(design), "languages": count, "method": method, "coverage": f"{percent:.2f}"}
        for design, count in product(DESIGNS, LANGUAGES)
        for method, percent in coverage(design, count, trials).items()
    ]
    pd.DataFrame(rows).to_csv(TABLE, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
