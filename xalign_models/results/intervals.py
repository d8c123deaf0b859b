"""95% intervals of means over languages and of their differences, p-values, and intervals of ranks.

A score is the mean over subsets of the mean over sentences. Both are samples: of languages and of sentences. Sentence
i of every subset is one unit, because multi-parallel text says the same in all languages. Subsets that share a language
are not independent either; the jackknife over languages takes care of both tasks of pairs and tasks of single
languages. A design effect takes care of neighbouring sentences that depend on each other. ``python -m
docs.tools.coverage`` simulates how often the intervals cover the truth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.results.languages import varying
from xalign_models.results.significance import (
    ALPHA,
    MANY,
    ZERO,
    design_effect,
    effect_of_squares,
    sign_flip_test,
    sign_flip_tests,
    windows,
)

Z = 1.959964
"""Two-sided 95% quantile of the normal distribution."""
FEWEST = 12
"""At this number of languages and above, intervals over languages cover the truth in 92% to 97% of all cases."""
Array = npt.NDArray[np.float64]
_ROWS = ("shares", "sentences", "languages")


@dataclass(frozen=True)
class Sample:
    """A mean over subsets, split by language and by sentence; the difference of two is a sample, too.

    Attributes:
        shares: (n,) each sentence's share in the mean, which is their sum.
        sentences: (n,) the shares, each outcome less the mean of its subset.
        languages: (L,) the jackknife's pseudo-values: L times the mean less L - 1 times the mean without a language.
        cells: (L, n) the pseudo-values of ``sentences``, float32.
        whole: The share of a sentence that is in all subsets and right in all of them.
    """

    shares: Array
    sentences: Array
    languages: Array
    cells: npt.NDArray[np.float32]
    whole: float

    @classmethod
    def of(cls, outcomes: Mapping[str, npt.NDArray[np.generic]], spoken: Mapping[str, Collection[str]]) -> Sample:
        """The sample of a mean over subsets, from outcomes (n,) and languages by subset."""
        subsets = sorted(outcomes)
        lengths = np.array([len(outcomes[subset]) for subset in subsets])
        distinct, place = np.unique(lengths, return_inverse=True)
        hits = all(array.dtype == np.bool_ for array in outcomes.values())  # which float32 counts exactly
        values = np.zeros((len(subsets), distinct[-1]), np.float32 if hits else np.float64)
        for row, subset, length in zip(values, subsets, lengths.tolist(), strict=True):
            row[:length] = outcomes[subset]
        of_length, there = np.eye(len(distinct))[:, place], np.arange(distinct[-1]) < distinct[:, None]
        means = values @ np.ones(distinct[-1], values.dtype) / lengths
        of_languages = _weights(tuple(tuple(spoken.get(subset, ())) for subset in subsets))
        cells = of_languages / lengths
        shares = 1 / (distinct * len(lengths)) @ (of_length.astype(values.dtype) @ values)
        return cls(
            shares,
            shares - means / (lengths * len(lengths)) @ of_length.T @ there,
            of_languages @ means,
            cells.astype(np.float32) @ values.astype(np.float32, copy=False)
            - (cells * means @ of_length.T @ there).astype(np.float32),
            float(np.mean(1 / lengths)),
        )

    def __sub__(self, other: Sample) -> Sample:
        """The paired difference of two samples with the same subsets and sentences."""
        names = (*_ROWS, "cells")
        return replace(self, **{name: getattr(self, name) - getattr(other, name) for name in names})


@lru_cache(maxsize=64)
def _weights(spoken: tuple[tuple[str, ...], ...]) -> Array:
    """(L, subsets) weights of the jackknife's pseudo-values, from the languages of each subset."""
    names = varying(spoken)
    kept = np.array([[name not in codes for codes in spoken] for name in names], dtype=float)
    kept = kept.reshape(len(names), len(spoken))
    weights: Array = len(names) / len(spoken) - (len(names) - 1) * kept / kept.sum(axis=1, keepdims=True)
    return weights


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval.

    Attributes:
        low: Lower end of the interval; minus infinity for a single sentence.
        high: Upper end.
        p: Two-sided p-value of a mean of zero.
        over_languages: Whether both hold for other languages, too; otherwise for other sentences in these alone.
    """

    low: float
    high: float
    p: float
    over_languages: bool


def over_items(mean: float, squares: float, whole: float) -> tuple[float, float]:
    """The 95% interval of a mean change over items (Agresti and Min 2005, Simple improved confidence intervals).

    It is the normal interval after two more items, of which one moved wholly, up or down alike. Without them, the
    interval of 30 items has no width if none moved, and may cover the truth in as few as 14% of the cases.

    Args:
        mean: The change, the sum of the items' shares in it.
        squares: Sum of the squared shares, each less the mean share.
        whole: Share of an item that moves wholly: 1 / n.
    """
    more = 1 + 2 * whole
    reach = Z * math.sqrt(squares + whole**2 + 2 * (mean * whole) ** 2 / more)
    return (mean - reach) / more, (mean + reach) / more


def estimate(sample: Sample, fewest: int = FEWEST) -> Estimate:
    """The interval and the test of a mean over languages, or :func:`over_items` for fewer than ``fewest`` languages.

    The variance is that of two-way clusters (Cameron, Gelbach, Miller 2011): by language plus by sentence less by both,
    at least that by language. The part by sentence is multiplied by the sentences' design effect. The mean over its
    standard error has a t distribution with Satterthwaite's degrees of freedom, or so has Hall's (1992) transformation
    ``g(t) = t + k t^2 / 3 + k^2 t^3 / 27 + k / 6`` of t, which removes the skewness k that the mean has from the
    languages: the interval holds both intervals, and p is the larger one. For languages of a normal distribution, the
    estimate of k alone would make p of 0.2% twice as frequent as it says. p is at least that of the sign-flip test over
    sentences, too.
    """
    mean, n, count = float(sample.shares.sum()), len(sample.shares), len(sample.languages)
    effect = float(design_effect(sample.sentences))
    p = sign_flip_test(sample.shares, effect)
    if n < 2:
        return Estimate(-math.inf, math.inf, p, False)
    squares = float(np.square(sample.sentences).sum())
    if count < max(fewest, 3):
        return Estimate(*over_items(mean, effect * squares, effect * sample.whole), p, False)
    from scipy.special import stdtrit

    by_sentence = n / (n - 1) * squares
    cells = float(np.square(sample.cells, dtype=np.float64).sum())
    error, freedom, k = (float(part) for part in _moments(sample.languages, by_sentence, cells, n, effect))
    if error < ZERO:
        return Estimate(mean, mean, p, True)
    limit = float(stdtrit(freedom, 1 - ALPHA / 2))
    low = mean - error * max(limit, _inverse(limit, k))
    high = mean - error * min(-limit, _inverse(-limit, k))
    return Estimate(low, high, max(p, float(_p_values(mean / error, freedom, k))), True)


def _moments(languages: Array, by_sentence: Any, cells: Any, n: int, effect: Any) -> tuple[Any, Any, Any]:
    """Standard error, degrees of freedom and skewness of means over (..., L) languages and n sentences.

    ``by_sentence`` is the variance of the mean over independent sentences, ``cells`` the sum of squares of the cells,
    and ``effect`` the sentences' design effect.
    """
    count = languages.shape[-1]
    centred = languages - languages.mean(axis=-1, keepdims=True)
    squared = np.square(centred)
    by_language = squared.sum(axis=-1) / (count * (count - 1))
    shared = effect * np.maximum(by_sentence - n / (n - 1) * cells / count**2, 0.0)
    variance = by_language + shared
    third = (squared * centred).sum(axis=-1) / (count * (count - 1) * (count - 2))  # cumulant of the mean, unbiased
    with np.errstate(divide="ignore", invalid="ignore"):  # equal outcomes
        freedom = variance**2 / (by_language**2 / (count - 1) + shared**2 * effect / (n - 1))
        return np.sqrt(variance), freedom, third / variance**1.5


def _p_values(t: Any, freedom: Any, k: Any) -> Any:
    """Two-sided p-values of means over their standard errors: the larger of that of t and of Hall's transformation."""
    from scipy.special import stdtr

    transformed = t + k * t**2 / 3 + k**2 * t**3 / 27 + k / 6
    return 2 * stdtr(freedom, -np.minimum(np.abs(t), np.abs(transformed)))


def _inverse(value: float, k: float) -> float:
    """The t whose transformation by Hall is ``value``."""
    return 3 / k * (math.cbrt(1 + k * (value - k / 6)) - 1) if abs(k) > 1e-6 else value


def pair_tests(samples: Sequence[Sample], fewest: int = FEWEST) -> Array:
    """p-values of the differences of all pairs of samples, in the order of ``itertools.combinations``.

    They are those of :func:`estimate`, with the sums of squares of all pairs from matrix products.
    """
    from scipy.special import erfc

    shares, sentences, languages = (np.stack([getattr(s, name) for s in samples]) for name in _ROWS)
    n, count = shares.shape[1], languages.shape[1]
    over_languages = n > 1 and count >= max(fewest, 3)
    totals, products = shares.sum(axis=1), np.zeros((len(samples), len(samples)))
    for place in range(count if over_languages else 0):
        cells = np.stack([sample.cells[place] for sample in samples])
        products += cells @ cells.T
    together = windows(sentences)
    squared = (shares @ shares.T, sentences @ sentences.T, together @ together.T, products)
    of_shares, of_sentences, of_windows, of_cells = map(_squares, squared)
    effects = effect_of_squares(of_windows, of_sentences)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values: Array = erfc(np.abs(totals[:, None] - totals) / np.sqrt(2 * effects * of_shares))
    few = ~(of_shares**2 > MANY * _fourths(shares))  # a square of k numbers' sum is at most k times the sum of squares
    found = [np.zeros(0)]
    for row in range(len(samples) - 1):
        others = slice(row + 1, None)
        p, doubtful = p_values[row, others], row + 1 + np.flatnonzero(few[row, others])
        p[doubtful - row - 1] = sign_flip_tests(shares[row] - shares[doubtful], effects[row, doubtful])
        if over_languages:
            by_sentence = n / (n - 1) * of_sentences[row, others]
            parts = (by_sentence, of_cells[row, others], n, effects[row, others])
            error, freedom, k = _moments(languages[row] - languages[others], *parts)
            with np.errstate(divide="ignore", invalid="ignore"):
                tested = _p_values((totals[row] - totals[others]) / error, freedom, k)
            p = np.where(error < ZERO, p, np.maximum(p, tested))
        found.append(p)
    return np.concatenate(found)


def _squares(products: Array) -> Array:
    """(m, m) sums of squares of the differences of m rows, from the products of all pairs of rows."""
    own = products.diagonal()
    squares: Array = np.maximum(own[:, None] + own - 2 * products, 0)
    return squares


def _fourths(rows: Array) -> Array:
    """(m, m) upper bounds of the sums of fourth powers of the differences of m rows, from products of all pairs."""
    squares = rows**2
    cubes, own = (squares * rows) @ rows.T, np.square(squares).sum(axis=1)
    sums, rounding = own[:, None] + own, 16 * rows.shape[1] * np.finfo(np.float64).eps
    fourths: Array = sums * (1 + rounding) - 4 * (cubes + cubes.T) + 6 * squares @ squares.T
    return fourths


def ranks(scores: Sequence[float], p_values: npt.ArrayLike) -> list[tuple[int, int]]:
    """Best and worst plausible rank of each model, from 1, by its score and the pairs' p-values, already corrected.

    A model's best rank is one more than the number of models that are better beyond chance; its worst rank is the
    number of models less those that are worse beyond chance.
    """
    values, (first, second) = np.asarray(scores), np.triu_indices(len(scores), 1)
    proven = np.flatnonzero(np.asarray(p_values) < ALPHA)
    first, second = first[proven], second[proven]
    above = values[first] > values[second]
    better = np.bincount(np.where(above, second, first), minlength=len(scores))
    worse = np.bincount(np.where(above, first, second), minlength=len(scores))
    return list(zip((1 + better).tolist(), (len(scores) - worse).tolist(), strict=True))
