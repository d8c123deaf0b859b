"""Scores of language pairs, and the rows by language that boards and gates report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from functools import cache, lru_cache
from itertools import chain, combinations
from statistics import fmean
from typing import TypeVar

from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import FLORES_200, canonical, is_canonical

# The public results call Mandarin cmo (Mnong) in MASSIVE, and Hangul Kore.
_MENDED = {"cmo-Hans": "zho-Hans", "cmo-Hant": "zho-Hant", "kor-Kore": "kor-Hang"}
_PAIR = re.compile(r"([a-z]{3}_[A-Z][a-z]{3})-([a-z]{3}_[A-Z][a-z]{3})")


@cache
def language_code(code: str) -> str | None:
    """The canonical form of a public result's language code, or the code itself if only mteb knows it, else None."""
    code = _MENDED.get(code, code)
    if code in FLORES_200:
        return code
    try:
        return canonical(code)
    except LanguageError:
        return code if is_canonical(code) else None


def language_pairs(subsets: Iterable[str]) -> dict[str, tuple[str, str]] | None:
    """``deu_Latn-eng_Latn`` -> (``deu_Latn``, ``eng_Latn``) for each subset; None unless all are such pairs."""
    matches = {subset: _pair(subset) for subset in subsets}
    pairs = {subset: pair for subset, pair in matches.items() if pair}
    return pairs if len(pairs) == len(matches) else None


@lru_cache(maxsize=1 << 16)
def _pair(subset: str) -> tuple[str, str] | None:
    match = _PAIR.fullmatch(subset)
    return (match[1], match[2]) if match else None


def into_and_from(scores: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Means (Into X, From X) of a score by subset ``a-b``, by target and by source language, sorted.

    Raises:
        DataError: There are no scores.
    """
    if not scores:
        raise DataError("There are no scores to average.")
    into, leaving = defaultdict(list), defaultdict(list)
    for subset, value in scores.items():
        source, target = subset.split("-")
        into[target].append(value)
        leaving[source].append(value)
    return {x: fmean(into[x]) for x in sorted(into)}, {x: fmean(leaving[x]) for x in sorted(leaving)}


def language_weights(subsets: Collection[str]) -> Mapping[str, Mapping[str, float]]:
    """The reported rows of a task: name -> subset -> its share; the shares of a name sum to 1.

    For language pairs the rows are languages, as the mean of Into X and From X (or the available one); otherwise they
    are subsets. If there are several, a row has the mean over all.
    """
    return _language_weights(tuple(subsets))


@lru_cache(maxsize=64)  # thousands of results have the same subsets
def _language_weights(subsets: tuple[str, ...]) -> Mapping[str, Mapping[str, float]]:
    pairs = language_pairs(subsets)
    rows = {"mean": dict.fromkeys(subsets, 1 / len(subsets))} if len(subsets) > 1 else {}
    if not pairs:
        return rows | {subset: {subset: 1.0} for subset in subsets}
    into, leaving = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for subset, (source, target) in pairs.items():
        leaving[source].append(subset)
        into[target].append(subset)
    for language in sorted(into.keys() | leaving.keys()):
        sides = [side[language] for side in (into, leaving) if language in side]
        weights: dict[str, float] = {}
        for side in sides:  # x-x is on both
            weights |= {subset: weights.get(subset, 0.0) + 1 / (len(sides) * len(side)) for subset in side}
        rows[code(language)] = weights
    return rows


def varying(spoken: Iterable[Collection[str]]) -> list[str]:
    """The languages of some subsets that are not in all, as English is where every pair has it; sorted."""
    languages = [set(codes) for codes in spoken]
    return sorted(code for code in {*chain(*languages)} if not all(code in codes for codes in languages))


def within(spoken: Mapping[str, Collection[str]], languages: Collection[str] | None) -> set[str]:
    """Subsets whose languages, but the one of all pairs, are among the chosen ones, and one at least."""
    if languages is None:
        return set(spoken)
    chosen = set(languages)
    others = set(varying(spoken.values())) - chosen
    return {subset for subset, codes in spoken.items() if not codes or (not others & {*codes} and chosen & {*codes})}


Subset = TypeVar("Subset", bound=Hashable)


def shared(covered: Collection[frozenset[Subset]]) -> frozenset[Subset]:
    """The subsets over which rows are compared, from the subsets that each row has.

    They give the most scores: rows that have them all, times their number. Rows that lack one are not compared.
    """
    candidates = {*covered, *(first & second for first, second in combinations(set(covered), 2))}
    return max(
        candidates,
        key=lambda subsets: (
            len(subsets) * sum(subsets <= row for row in covered),
            len(subsets),
            sorted(map(str, subsets)),
        ),
        default=frozenset(),
    )


def code(language: str) -> str:
    """``deu_Latn``, as subsets write it, as the canonical ``deu-Latn``."""
    return language.replace("_", "-")
