"""The regression gate: new results against old ones, task by task and language by language.

A score whose items are there before and after is judged by a paired test; the others by their tolerance alone.
``docs/ci.md`` has the rules and why they are so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.evaluation.baseline import DEFAULT, Before
from xalign_models.evaluation.board import wrap
from xalign_models.evaluation.escaping import escape
from xalign_models.evaluation.impossible import impossible_scores
from xalign_models.evaluation.leaderboard import choose, choose_models
from xalign_models.evaluation.paired import fall_p, holm, standard_error
from xalign_models.evaluation.results import MAIN, Results, TaskScores, language_pairs
from xalign_models.evaluation.significance import ALPHA, Items

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_Z = 1.6448536269514722  # of a one-sided 95% bound
_NOISE = 1e-6  # points; of the subtraction and of a baseline's rounding: a fall of exactly the tolerance is allowed
MOST_SHOWN = 100
"""Rows that a terminal and a summary show; JSON and JUnit have all."""


class Verdict(StrEnum):
    """What is known of a score."""

    FAIL = "fail"
    CANNOT_TELL = "cannot tell"
    PASS = "pass"


_ORDER = list(Verdict)


@dataclass(frozen=True)
class GateRow:
    """One score before and after; in percent.

    Attributes:
        model: Its name; ``throughput`` where times are compared.
        task: Its name, or the benchmark's module.
        language: A language of a pair task, a subset of another one, or ``mean``.
        tolerance: Points that it may fall: the least effect that matters is more.
        verdict: Whether it fell.
        reason: Why, in a few words.
        old: The score before; None where there is none.
        new: The score now; None where there is none.
        low: Lower end of the difference's 90% interval, in points; None without items.
        high: Upper end.
        p: That a fall is chance, corrected for all rows of the report; None without items.
    """

    model: str
    task: str
    language: str
    tolerance: float
    verdict: Verdict
    reason: str
    old: float | None = None
    new: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def difference(self) -> float | None:
        """New minus old, in points."""
        return None if self.old is None or self.new is None else self.new - self.old

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, task and language."""
        return self.model, self.task, self.language

    def explained(self) -> str:
        """The reason with the numbers, on one line that is safe to show."""
        if self.difference is None:
            return escape(self.reason)
        error = "" if self.low is None or self.high is None else f", 90% interval {self.low:+.2f} to {self.high:+.2f}"
        chance = "" if self.p is None else f", p {self.p:.2g}"
        moved = f"{self.old:.2f} to {self.new:.2f} ({self.difference:+.2f}{error}{chance}, allowed -{self.tolerance:g})"
        return f"{escape(self.reason)}: {moved}"


@dataclass(frozen=True)
class GateReport:
    """All rows, the worst verdicts first; rich prints those that do not pass and one line of summary.

    Attributes:
        rows: By verdict, model, task; ``mean`` before the languages.
        unguarded: (model, task) that have new results and no old ones.
    """

    rows: tuple[GateRow, ...]
    unguarded: tuple[tuple[str, str], ...] = ()

    @property
    def exit_code(self) -> int:
        """0: every score is kept up; 1: one is not; 3: none fell, but some cannot be judged."""
        verdicts = {row.verdict for row in self.rows}
        if Verdict.FAIL in verdicts:
            return 1
        return 0 if verdicts == {Verdict.PASS} else 3

    @property
    def open_rows(self) -> list[GateRow]:
        """Rows that do not pass."""
        return [row for row in self.rows if row.verdict != Verdict.PASS]

    def summary(self) -> str:
        """One line."""
        counts = [(verdict, sum(row.verdict == verdict for row in self.rows)) for verdict in _ORDER]
        said = ", ".join(f"{verdict}: {n}" for verdict, n in counts if n) or "nothing to compare"
        word = {0: "passed", 1: "FAILED", 3: "CANNOT TELL"}[self.exit_code]
        noisy = [-row.low for row in self.rows if row.verdict == Verdict.CANNOT_TELL and row.low is not None]
        said += f"; the items at hand can vouch for a tolerance of {max(noisy):.2f} points" if noisy else ""
        notes = f"; not guarded, having no old result: {len(self.unguarded)}" if self.unguarded else ""
        return f"Gate {word} ({said}{notes})."

    def to_json(self) -> dict[str, Any]:
        """Plain data: every row, the summary and the exit code."""
        rows = [asdict(row) | {"difference": row.difference} for row in self.rows]
        plain = [{key: round(v, 9) if isinstance(v, float) else v for key, v in row.items()} for row in rows]
        return {"exit_code": self.exit_code, "summary": self.summary(), "rows": plain}

    def to_rich(self) -> RenderableType:
        """What rich prints."""
        return self

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The rows that do not pass, if any, and the summary."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if self.open_rows:
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
            for head in ("verdict", "model", "task", "language", "why"):
                table.add_column(head, no_wrap=head == "verdict")
            limit = 40 if options.max_width > 110 else 10
            for row in self.open_rows[:MOST_SHOWN]:
                verdict = Text(row.verdict, style="bold red" if row.verdict == Verdict.FAIL else "yellow")
                names = ("\n".join(wrap(escape(name), limit)) for name in (row.model.removeprefix("xalign/"), row.task))
                table.add_row(verdict, *map(Text, (*names, escape(row.language), row.explained())))
            yield from (table, "")
            if len(self.open_rows) > MOST_SHOWN:
                yield Text(f"and {len(self.open_rows) - MOST_SHOWN} more, all of which --json has.")
        yield Text(self.summary(), style="bold")


def weights(subsets: Collection[str]) -> dict[str, dict[str, float]]:
    """What is reported of a task: name -> subset -> its share; the shares of a name sum to 1.

    Of language pairs: each language, as the mean of Into X and From X (or the one there is); else each subset. Beside
    them the mean over all, if there is more than one.
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
        results: What there is now.
        before: What is to be kept up, and the tolerances.
        models: Names, with or without ``xalign/``, directories or hub ids; None is all.
        tasks: Names; None is all.

    Raises:
        ResultsError: Neither the old nor the new results have a name, be it of a tolerance, a model or a task.
    """
    old = before.results
    keys = {*old.tables, *old.unreadable, *results.tables, *results.unreadable}
    known = sorted({task for _, task in keys})
    choose(known, before.tolerance.keys() - {DEFAULT}, "task (of a tolerance)")
    kept = choose_models(sorted({model for model, _ in keys}), models)
    chosen = sorted(keys & set(product(kept, choose(known, tasks, "task"))))
    items = Items(MAIN), Items(MAIN)
    rows: list[GateRow] = []
    unguarded = []
    for key in chosen:
        tolerance = before.tolerance.get(key[1], before.tolerance[DEFAULT])
        rows += _judge(key, (old, results), tolerance, items)
        unguarded += [key] if key not in old.tables.keys() | old.unreadable.keys() else []
    return GateReport(tuple(decide(rows)), tuple(unguarded))


def decide(rows: Iterable[GateRow]) -> list[GateRow]:
    """The rows with their p-values corrected and a verdict for those that have numbers, the worst first.

    Fail: the score fell by more than the tolerance, and a fall as large is chance in 5% of such reports at most. Pass:
    the lower end of its interval is within the tolerance. Cannot tell: neither. Without items: by the tolerance alone.
    """
    rows = list(rows)
    tested = [index for index, row in enumerate(rows) if row.p is not None]
    for index, p in zip(tested, holm([float(rows[index].p or 0) for index in tested]), strict=True):
        rows[index] = replace(rows[index], p=p)
    rows = [row if row.difference is None else _decided(row) for row in rows]
    return sorted(rows, key=lambda row: (_ORDER.index(row.verdict), *row.key[:2], row.language != "mean", row.language))


def _decided(row: GateRow) -> GateRow:
    assert row.difference is not None
    fell = row.difference < -row.tolerance - _NOISE
    if fell and (row.p is None or row.p < ALPHA):
        return replace(row, verdict=Verdict.FAIL, reason="fell")
    if (row.difference if row.low is None else row.low) >= -row.tolerance - _NOISE:
        return replace(row, verdict=Verdict.PASS, reason="kept up")
    return replace(row, verdict=Verdict.CANNOT_TELL, reason="may be chance, too few items to tell")


def _judge(
    key: tuple[str, str], sides: tuple[Results, Results], tolerance: float, items: tuple[Items, Items]
) -> Iterator[GateRow]:
    old, new = (side.tables.get(key) for side in sides)
    wrong = impossible_scores(new) if new else {}

    def rows(why: Mapping[str, tuple[Verdict, str]]) -> Iterator[GateRow]:
        yield from (GateRow(*key, name, tolerance, *said) for name, said in why.items())

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
    never = impossible_scores(old)
    common = [subset for subset in values[0] if subset in values[1] and not {subset} & (wrong.keys() | never.keys())]
    for subset in {**values[0], **never}:
        if subset not in common and subset not in bad:
            what = f"impossible score before: {never[subset]}" if subset in never else "missing: no new score"
            bad[subset] = (Verdict.CANNOT_TELL, what)
    yield from rows(_blame(bad, common))
    yield from _compared(key, common, values, tolerance, _gaps((old, new), items, common))


def _blame(bad: Mapping[str, tuple[Verdict, str]], common: Sequence[str]) -> dict[str, tuple[Verdict, str]]:
    """Of pairs without a comparison: the languages that have no other pair, then the pairs that no such one explains.

    So one broken language is one row, and not all languages that are paired with it.
    """
    pairs = language_pairs([*bad, *common])
    if not pairs:
        return dict(bad)
    alive = {language for subset in common for language in pairs[subset]}
    blamed: dict[str, tuple[Verdict, str]] = {}
    lost = {subset: sum(language not in alive for language in pairs[subset]) for subset in bad}
    for subset, said in bad.items():
        names = [_name(language) for language in pairs[subset] if language not in alive] if lost[subset] else [subset]
        for name in names:
            blamed[name] = min(blamed.get(name, said), said, key=lambda one: _ORDER.index(one[0]))
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
