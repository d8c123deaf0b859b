"""The regression gate: new results against old ones, task by task and language by language.

Scores with items before and after are judged by a paired test against the tolerance, the others by it alone.
``docs/ci.md`` explains the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path

import numpy as np

from xalign_models.boards.baseline import DEFAULT, LANGUAGES, Before
from xalign_models.boards.leaderboard import choose, choose_models
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict, decide
from xalign_models.errors import ResultsError
from xalign_models.parallel import map_forked
from xalign_models.results.items import Items
from xalign_models.results.languages import code, language_pairs, language_weights
from xalign_models.results.possible import MAIN
from xalign_models.results.proportions import Fall, interval, p_of_fall
from xalign_models.results.reading import Results, read_results


def read_new(root: Path) -> Results:
    """The results below a folder; empty if a folder has none, so that the gate names what is missing.

    Raises:
        ResultsError: The folder does not exist.
    """
    try:
        return read_results(root)
    except ResultsError:
        if not root.is_dir():
            raise
        return Results(root, {}, {})


def compare(
    results: Results, before: Before, models: Collection[str] | None = None, tasks: Collection[str] | None = None
) -> GateReport:
    """Compare old scores with new ones, of some models (by any name that ``xalign run`` takes) and tasks, or of all.

    Subsets that the old results do not have are left out, so that a wider run is compared like for like; an impossible
    score fails wherever it is. A model with several revisions on one side is not judged, as one could hide the other.

    Raises:
        ResultsError: A name of a tolerance, a model or a task is in neither the old nor the new results.
    """
    old = before.results
    keys = {*old.tables, *old.unreadable, *results.tables, *results.unreadable}
    task_names = sorted({task for _, task in keys})
    choose(task_names, before.tolerance.keys() - {DEFAULT, LANGUAGES}, "the tolerance's task")
    chosen_models = choose_models(sorted({model for model, _ in keys}), models)
    chosen = sorted(keys & set(product(chosen_models, choose(task_names, tasks, "task"))))

    def judge(key: tuple[str, str]) -> list[tuple[GateRow, Fall | None]]:
        tolerance = before.tolerance.get(key[1], before.tolerance[DEFAULT])
        each = max(tolerance, before.tolerance.get(LANGUAGES, 0))
        return list(_judge(key, (old, results), (tolerance, each), Items(MAIN)))

    judged = [*chain.from_iterable(map_forked(judge, chosen, len(chosen)))]
    guarded = old.tables.keys() | old.unreadable.keys()
    return GateReport(tuple(decide(_tested(judged))), tuple(key for key in chosen if key not in guarded))


def _tested(judged: Sequence[tuple[GateRow, Fall | None]]) -> Iterator[GateRow]:
    """The rows, those with a fall with its interval and p-value; all falls are tested at once."""
    having = [(row, fall) for row, fall in judged if fall]
    falls = Fall(*np.array([fall for _, fall in having]).reshape(-1, len(Fall._fields)).T)
    p_values = p_of_fall(falls, np.array([row.tolerance / 100 for row, _ in having])).tolist()
    high, low = ((-100 * end).tolist() for end in interval(falls))
    tests = zip(having, high, low, p_values, strict=True)
    tested = iter([row._replace(high=most, low=least, p=p) for (row, _), most, least, p in tests])
    yield from (next(tested) if fall else row for row, fall in judged)


def _judge(
    key: tuple[str, str], sides: tuple[Results, Results], tolerances: tuple[float, float], items: Items
) -> Iterator[tuple[GateRow, Fall | None]]:
    """The rows of a model on a task, with their falls if there are items.

    ``tolerances`` are those of the mean and of a language beside it.
    """
    tolerance = tolerances[0]
    old, new = (side.tables.get(key) for side in sides)
    wrong = new.impossible if new else {}

    def rows(why: Mapping[str, tuple[Verdict, str]]) -> Iterator[tuple[GateRow, None]]:
        yield from ((GateRow(*key, name, tolerance, *reason), None) for name, reason in why.items())

    bad = {subset: (Verdict.FAIL, f"impossible score: {reason}") for subset, reason in wrong.items()}
    unknown = _unknown(key, sides)
    if unknown:
        yield from rows({**bad, "mean": (Verdict.CANNOT_TELL, unknown)})
        return
    if not old or not new:
        yield from rows(bad)
        return
    values, never = (old.values(), new.values()), old.impossible
    possible = values[1].keys() - wrong.keys() - never.keys()
    common = {subset: None for subset in values[0] if subset in possible}  # ordered, and fast for 40,000 pairs
    for subset in {**values[0], **never}:
        if subset not in common and subset not in bad:
            reason = f"impossible score before: {never[subset]}" if subset in never else "missing: no new score"
            bad[subset] = (Verdict.CANNOT_TELL, reason)
    yield from rows(_blame(bad, common) if bad else {})
    shares = language_weights(common) if common else {}
    falls = items.falls(new, old, shares)
    earlier = items.outcomes(old)
    outcomes = items.outcomes(new) if earlier else {}
    counts = {subset: (len(earlier[subset]), len(outcomes[subset])) for subset in earlier.keys() & outcomes.keys()}
    other = {subset: count for subset, count in counts.items() if count[0] != count[1]}
    for name, weights in shares.items():
        tolerance = tolerances[name != "mean" and len(shares) > 1]
        if changed := min(other.keys() & weights.keys(), default=""):
            reason = "other items: {} had {} and has {} now".format(changed, *other[changed])
            yield GateRow(*key, name, tolerance, Verdict.CANNOT_TELL, reason), None
            continue
        before, after = (100 * sum(weight * side[subset] for subset, weight in weights.items()) for side in values)
        yield GateRow(*key, name, tolerance, Verdict.CANNOT_TELL, "", before, after), falls.get(name)


def _unknown(key: tuple[str, str], sides: tuple[Results, Results]) -> str | None:
    """Why a model cannot be compared on a task with old results; None if it can."""
    old, new = (side.tables.get(key) for side in sides)
    several = [f"{', '.join(side.several[key])} under {side.root}" for side in sides if key in side.several]
    if several and (old or key in sides[0].unreadable):
        return f"several revisions, {'; '.join(several)}: keep one of them there"
    if key in sides[0].unreadable:
        return f"the old result cannot be read: {sides[0].unreadable[key]}"
    if key in sides[1].unreadable:
        return f"the new result cannot be read: {sides[1].unreadable[key]}"
    if old and not new:
        return "missing: no new result"
    if old and new and old.dataset_revision != new.dataset_revision:
        return f"other text: revision {old.dataset_revision} before, {new.dataset_revision} now"
    if old and new and old.frame.subsets and not new.frame.subsets:
        return "missing: the new result has no scores"
    if old and new and old.frame.split and old.frame.split != new.frame.split:  # an old baseline has none
        return f"other text: split {old.frame.split} before, {new.frame.split} now"
    return None


def _blame(bad: Mapping[str, tuple[Verdict, str]], common: Collection[str]) -> dict[str, tuple[Verdict, str]]:
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
        names = [code(language) for language in pairs[subset] if language not in alive] if lost[subset] else [subset]
        for name in names:
            blamed[name] = min(blamed.get(name, reason), reason, key=lambda entry: list(Verdict).index(entry[0]))
    return blamed
