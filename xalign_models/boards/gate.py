"""The regression gate: new results against old ones, task by task and language by language.

Scores with items before and after are judged by a paired test, the others by their tolerance alone.
``docs/ci.md`` explains the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from xalign_models.boards.baseline import DEFAULT, Before
from xalign_models.boards.leaderboard import choose, choose_models
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict, decide
from xalign_models.results.paired import fall_p, standard_error
from xalign_models.results.reading import MAIN, Results, TaskScores, language_pairs
from xalign_models.results.significance import Items

_Z = 1.6448536269514722  # of a one-sided 95% bound


def weights(subsets: Collection[str]) -> dict[str, dict[str, float]]:
    """The reported rows of a task: name -> subset -> its share; the shares of a name sum to 1.

    For language pairs the rows are languages, as the mean of Into X and From X (or the available one); otherwise they
    are subsets. If there are several, a row has the mean over all.
    """
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
        rows[_name(language)] = {subset: 1 / (len(sides) * len(side)) for side in sides for subset in side}
    return rows


def compare(
    results: Results, before: Before, models: Collection[str] | None = None, tasks: Collection[str] | None = None
) -> GateReport:
    """Every old score against the new results.

    Subsets that the old results do not have are left out, so that a wider run is compared like for like; an impossible
    score fails wherever it is.

    Args:
        results: The new results.
        before: The old results and the tolerances.
        models: Names, with or without ``xalign/``, directories or hub ids; None for all.
        tasks: Names; None for all.

    Raises:
        ResultsError: A name of a tolerance, a model or a task is in neither the old nor the new results.
    """
    old = before.results
    keys = {*old.tables, *old.unreadable, *results.tables, *results.unreadable}
    task_names = sorted({task for _, task in keys})
    choose(task_names, before.tolerance.keys() - {DEFAULT}, "the tolerance's task")
    chosen_models = choose_models(sorted({model for model, _ in keys}), models)
    chosen = sorted(keys & set(product(chosen_models, choose(task_names, tasks, "task"))))
    items = Items(MAIN), Items(MAIN)
    rows: list[GateRow] = []
    unguarded = []
    for key in chosen:
        tolerance = before.tolerance.get(key[1], before.tolerance[DEFAULT])
        rows += _judge(key, (old, results), tolerance, items)
        unguarded += [key] if key not in old.tables.keys() | old.unreadable.keys() else []
    return GateReport(tuple(decide(rows)), tuple(unguarded))


def _judge(
    key: tuple[str, str], sides: tuple[Results, Results], tolerance: float, items: tuple[Items, Items]
) -> Iterator[GateRow]:
    old, new = (side.tables.get(key) for side in sides)
    wrong = new.impossible if new else {}

    def rows(why: Mapping[str, tuple[Verdict, str]]) -> Iterator[GateRow]:
        yield from (GateRow(*key, name, tolerance, *reason) for name, reason in why.items())

    bad = {subset: (Verdict.FAIL, f"impossible score: {reason}") for subset, reason in wrong.items()}
    unknown: str | None = None
    if key in sides[0].unreadable:
        unknown = f"the old result cannot be read: {sides[0].unreadable[key]}"
    elif key in sides[1].unreadable:
        unknown = f"the new result cannot be read: {sides[1].unreadable[key]}"
    elif old and not new:
        unknown = "missing: no new result"
    elif old and new and old.dataset_revision != new.dataset_revision:
        unknown = f"other text: revision {old.dataset_revision} before, {new.dataset_revision} now"
    if unknown:
        yield from rows({**bad, "mean": (Verdict.CANNOT_TELL, unknown)})
        return
    if not old or not new:
        yield from rows(bad)
        return
    values = old.values(), new.values()
    never = old.impossible
    common = [subset for subset in values[0] if subset in values[1] and not {subset} & (wrong.keys() | never.keys())]
    for subset in {**values[0], **never}:
        if subset not in common and subset not in bad:
            reason = f"impossible score before: {never[subset]}" if subset in never else "missing: no new score"
            bad[subset] = (Verdict.CANNOT_TELL, reason)
    yield from rows(_blame(bad, common))
    yield from _compared(key, common, values, tolerance, _gaps((old, new), items, common))


def _blame(bad: Mapping[str, tuple[Verdict, str]], common: Sequence[str]) -> dict[str, tuple[Verdict, str]]:
    """Rows for pairs without a comparison: languages without any other pair, then pairs of other languages.

    One broken language thus makes one row, instead of a row per language paired with it.
    """
    pairs = language_pairs([*bad, *common])
    if not pairs:
        return dict(bad)
    alive = {language for subset in common for language in pairs[subset]}
    blamed: dict[str, tuple[Verdict, str]] = {}
    lost = {subset: sum(language not in alive for language in pairs[subset]) for subset in bad}
    for subset, reason in bad.items():
        names = [_name(language) for language in pairs[subset] if language not in alive] if lost[subset] else [subset]
        for name in names:
            blamed[name] = min(blamed.get(name, reason), reason, key=lambda entry: list(Verdict).index(entry[0]))
    return blamed


def _name(language: str) -> str:
    return language.replace("_", "-")


def _gaps(tables: tuple[TaskScores, TaskScores], items: tuple[Items, Items], subsets: Sequence[str]) -> dict[str, Any]:
    """Subset -> (n,) shares of the items in its difference, as fractions; only where both sides have the same items."""
    before = items[0].outcomes(tables[0])
    after = items[1].outcomes(tables[1]) if before else {}
    return {
        subset: (after[subset].astype(np.float64) - before[subset]) / len(after[subset])
        for subset in subsets
        if subset in before and subset in after and len(before[subset]) == len(after[subset]) > 0
    }


def _compared(
    key: tuple[str, str],
    subsets: Sequence[str],
    values: tuple[Mapping[str, float], Mapping[str, float]],
    tolerance: float,
    gaps: Mapping[str, Any],
) -> Iterator[GateRow]:
    if not subsets:
        return
    for name, shares in weights(subsets).items():
        old, new = (100 * sum(share * side[subset] for subset, share in shares.items()) for side in values)
        row = GateRow(*key, name, tolerance, Verdict.CANNOT_TELL, "", old, new)
        if shares.keys() <= gaps.keys():
            total = np.zeros(max(len(gaps[subset]) for subset in shares))
            for subset, share in shares.items():
                total[: len(gaps[subset])] += 100 * share * gaps[subset]
            margin = _Z * standard_error(total)
            row = replace(row, low=new - old - margin, high=new - old + margin, p=fall_p(total))
        yield row
