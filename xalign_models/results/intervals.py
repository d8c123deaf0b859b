"""95% intervals of means over languages and of their differences, p-values, and intervals of ranks.

A score is the mean over subsets of the mean over sentences. Both are samples: of languages and of sentences. Sentence
i of every subset is one unit, because multi-parallel text says the same in all languages. Subsets that share a language
are not independent either; the jackknife over languages takes care of both tasks of pairs and tasks of single
languages. ``python -m docs.tools.coverage`` simulates how often the intervals cover the truth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from xalign_models.results.languages import varying
from xalign_models.results.significance import ALPHA, ZERO, sign_flip_test

Z = 1.959964
"""Two-sided 95% quantile of the normal distribution."""
FEWEST = 12
"""Number of languages from which on the intervals over languages cover the truth in 93% to 97% of all cases."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A mean over subsets, split by language and by sentence; the difference of two is a sample, too.

    Attributes:
        shares: (n,) each sentence's share in the mean, which is their sum.
        sentences: (n,) the shares, each outcome less the mean of its subset.
        languages: (L,) the jackknife's pseudo-values: L times the mean less L - 1 times the mean without a language.
        cells: (L, n) the pseudo-values of ``sentences``.
    """

    shares: Array
    sentences: Array
    languages: Array
    cells: Array

    @classmethod
    def of(cls, outcomes: Mapping[str, npt.NDArray[np.generic]], spoken: Mapping[str, Collection[str]]) -> Sample:
        """The sample of a mean over subsets, from outcomes (n,) and languages by subset."""
        subsets = sorted(outcomes)
        shares = np.zeros((len(subsets), max(map(len, outcomes.values()))))
        sentences, means = np.zeros_like(shares), np.zeros(len(subsets))
        for place, subset in enumerate(subsets):
            values = outcomes[subset].astype(np.float64)
            means[place] = values.mean()
            shares[place, : len(values)] = values / len(values)
            sentences[place, : len(values)] = (values - means[place]) / len(values)
        names = varying([spoken.get(subset, ()) for subset in subsets])
        kept = np.array([[name not in spoken.get(subset, ()) for subset in subsets] for name in names], dtype=float)
        kept = kept.reshape(len(names), len(subsets))
        weights = len(names) / len(subsets) - (len(names) - 1) * kept / kept.sum(axis=1, keepdims=True)
        return cls(shares.mean(axis=0), sentences.mean(axis=0), weights @ means, weights @ sentences)

    def __sub__(self, other: Sample) -> Sample:
        """The paired difference of two samples with the same subsets and sentences."""
        return Sample(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))


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


def estimate(sample: Sample, fewest: int = FEWEST) -> Estimate:
    """The interval and the test of a mean over languages, or over sentences alone for fewer than ``fewest`` languages.

    The variance is that of two-way clusters (Cameron, Gelbach, Miller 2011): by language plus by sentence less by both,
    at least that by language. The mean over its standard error has a t distribution with Satterthwaite's degrees of
    freedom, after Hall's (1992) transformation ``g(t) = t + k t^2 / 3 + k^2 t^3 / 27 + k / 6`` of t, which removes the
    skewness k that the mean has from the languages. p is at least that of the sign-flip test over sentences.
    """
    mean, n, count = float(sample.shares.sum()), len(sample.shares), len(sample.languages)
    p = sign_flip_test(sample.shares)
    if n < 2:
        return Estimate(-math.inf, math.inf, p, False)
    by_sentence = n / (n - 1) * float(np.square(sample.sentences).sum())
    if count < max(fewest, 3):
        return Estimate(mean - Z * math.sqrt(by_sentence), mean + Z * math.sqrt(by_sentence), p, False)
    from scipy.special import stdtr, stdtrit

    centred = sample.languages - sample.languages.mean()
    by_language = float(np.square(centred).sum()) / (count * (count - 1))
    shared = max(by_sentence - n / (n - 1) * float(np.square(sample.cells).sum()) / count**2, 0.0)
    variance = by_language + shared
    error = math.sqrt(variance)
    if error < ZERO:
        return Estimate(mean, mean, p, True)
    freedom = variance**2 / (by_language**2 / (count - 1) + shared**2 / (n - 1))
    third = float((centred**3).sum()) / (count * (count - 1) * (count - 2))  # cumulant of the mean, unbiased
    k, t, limit = third / error**3, mean / error, float(stdtrit(freedom, 1 - ALPHA / 2))
    transformed = t + k * t**2 / 3 + k**2 * t**3 / 27 + k / 6
    low, high = (mean - error * _inverse(side * limit, k) for side in (1, -1))
    return Estimate(low, high, max(p, 2 * float(stdtr(freedom, -abs(transformed)))), True)


def _inverse(value: float, k: float) -> float:
    """The t whose transformation by Hall is ``value``."""
    return 3 / k * (math.cbrt(1 + k * (value - k / 6)) - 1) if abs(k) > 1e-6 else value


def pair_tests(samples: Sequence[Sample]) -> list[float]:
    """p-values of the differences of all pairs of samples, in the order of ``itertools.combinations``."""
    return [estimate(first - second).p for first, second in combinations(samples, 2)]


def ranks(scores: Sequence[float], p_values: Sequence[float]) -> list[tuple[int, int]]:
    """Best and worst plausible rank of each model, from 1, by its score and the pairs' p-values, already corrected.

    A model's best rank is one more than the number of models that are better beyond chance; its worst rank is the
    number of models less those that are worse beyond chance.
    """
    better, worse = [0] * len(scores), [0] * len(scores)
    for (first, second), p in zip(combinations(range(len(scores)), 2), p_values, strict=True):
        if p < ALPHA:
            above, below = (first, second) if scores[first] > scores[second] else (second, first)
            better[below] += 1
            worse[above] += 1
    return [(1 + above, len(scores) - below) for above, below in zip(better, worse, strict=True)]
