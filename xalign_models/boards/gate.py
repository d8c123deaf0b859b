"""The regression gate: new results against old ones, task by task and language by language.

Scores with items before and after are judged by a paired test, the others by their tolerance alone.
``docs/ci.md`` explains the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from xalign_models.boards.baseline import DEFAULT, Before
from xalign_models.boards.leaderboard import choose, choose_models
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict, decide
from xalign_models.results.intervals import standard_error
from xalign_models.results.items import Items
from xalign_models.results.languages import code, language_pairs, language_weights
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import Results
from xalign_models.results.significance import fall_p

_Z = 1.6448536269514722  # of a one-sided 95% bound


def compare(
    results: Results, before: Before, models: Collection[str] | None = None, tasks: Collection[str] | None = None
) -> GateReport:
    """Compare old scores with new ones, of some models (by any name that ``xalign run`` takes) and tasks, or of all.

    Subsets that the old results do not have are left out, so that a wider run is compared like for like; an impossible
    score fails wherever it is.

    Raises:
        ResultsError: A name of a tolerance, a model or a task is in neither the old nor the new results.
    """
    old = before.results
    keys = {*old.tables, *old.unreadable, *results.tables, *results.unreadable}
    task_names = sorted({task for _, task in keys})
    choose(task_names, before.tolerance.keys() - {DEFAULT}, "the tolerance's task")
    chosen_models = choose_models(sorted({model for model, _ in keys}), models)
    chosen = sorted(keys & set(product(chosen_models, choose(task_names, tasks, "task"))))
    items = Items(MAIN)
    rows: list[GateRow] = []
    unguarded = []
    for key in chosen:
        tolerance = before.tolerance.get(key[1], before.tolerance[DEFAULT])
        rows += _judge(key, (old, results), tolerance, items)
        unguarded += [key] if key not in old.tables.keys() | old.unreadable.keys() else []
    return GateReport(tuple(decide(rows)), tuple(unguarded))


def _judge(key: tuple[str, str], sides: tuple[Results, Results], tolerance: float, items: Items) -> Iterator[GateRow]:
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
    values, never = (old.values(), new.values()), old.impossible
    common = [subset for subset in values[0] if subset in values[1] and subset not in {**wrong, **never}]
    for subset in {**values[0], **never}:
        if subset not in common and subset not in bad:
            reason = f"impossible score before: {never[subset]}" if subset in never else "missing: no new score"
            bad[subset] = (Verdict.CANNOT_TELL, reason)
    yield from rows(_blame(bad, common))
    for name, weights in language_weights(common).items() if common else ():
        before, after = (100 * sum(weight * side[subset] for subset, weight in weights.items()) for side in values)
        row = GateRow(*key, name, tolerance, Verdict.CANNOT_TELL, "", before, after)
        gaps = items.gaps(new, old, weights)
        if gaps is not None:
            margin = _Z * standard_error(100 * gaps)
            low, high = (after - before + sign * margin for sign in (-1, 1))
            row = replace(row, low=low, high=high, p=fall_p(gaps))
        yield row


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
        names = [code(language) for language in pairs[subset] if language not in alive] if lost[subset] else [subset]
        for name in names:
            blamed[name] = min(blamed.get(name, reason), reason, key=lambda entry: list(Verdict).index(entry[0]))
    return blamed
