"""The regression gate: results against ``results/baseline.json``, task by task and language by language."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from xalign_models.errors import ResultsError
from xalign_models.evaluation.board import wrap
from xalign_models.evaluation.leaderboard import choose, choose_models
from xalign_models.evaluation.results import Results, TaskScores, into_and_from, language_pairs
from xalign_models.paths import atomic_write_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

TOLERANCE = 0.5
"""Points that a score may fall where the baseline says nothing else."""
_NOISE = 1e-9  # of the subtraction: a fall of exactly the tolerance is none beyond it


class Verdict(StrEnum):
    """What became of one number of the baseline."""

    OK = "ok"
    REGRESSION = "regression"
    IMPROVED = "improved"
    MISSING = "missing"
    """No result, an unreadable one, or one without all the subsets that the baseline's is a mean of."""
    DATA_CHANGED = "data changed"
    """The result is of another revision of the task's text."""


_ORDER = [Verdict.REGRESSION, Verdict.MISSING, Verdict.DATA_CHANGED, Verdict.IMPROVED, Verdict.OK]


@dataclass(frozen=True)
class GateRow:
    """One number of the baseline and what was found for it; in percent.

    Attributes:
        model: Its name.
        task: Its name.
        language: A language of a pair task, a subset of another one, or ``mean``.
        expected: The baseline's number.
        found: Of the results; None where there is none to compare.
        tolerance: Points that it may fall.
        verdict: Whether it did.
    """

    model: str
    task: str
    language: str
    expected: float
    found: float | None
    tolerance: float
    verdict: Verdict

    @property
    def difference(self) -> float | None:
        """Found minus expected, in points."""
        return None if self.found is None else self.found - self.expected


@dataclass(frozen=True)
class GateReport:
    """All rows, the worst verdicts first; rich prints those that differ and one line of summary.

    Attributes:
        rows: By verdict, model, task; ``mean`` before the languages.
        unreadable: Files of the baseline's results that could not be read.
        unguarded: (model, task) that have results and are not in the baseline.
    """

    rows: tuple[GateRow, ...]
    unreadable: tuple[Path, ...] = ()
    unguarded: tuple[tuple[str, str], ...] = ()

    @property
    def exit_code(self) -> int:
        """0: nothing fell; 1: something fell beyond its tolerance; 2: else, something could not be judged."""
        verdicts = {row.verdict for row in self.rows}
        if Verdict.REGRESSION in verdicts:
            return 1
        return 2 if not self.rows or verdicts & {Verdict.MISSING, Verdict.DATA_CHANGED} else 0

    def summary(self) -> str:
        """One line."""
        counts = [(verdict, sum(row.verdict == verdict for row in self.rows)) for verdict in _ORDER]
        said = ", ".join(f"{verdict}: {n}" for verdict, n in counts if n) or "nothing to compare"
        word = {0: "passed", 1: "FAILED: scores fell", 2: "CANNOT JUDGE: run what is missing, or renew the baseline"}
        notes = f"; unreadable: {', '.join(map(str, self.unreadable))}" if self.unreadable else ""
        notes += f"; results that the baseline does not have: {len(self.unguarded)}" if self.unguarded else ""
        return f"Gate {word[self.exit_code]} ({said}{notes})."

    def to_json(self) -> dict[str, Any]:
        """Plain data: every row, the summary and the exit code."""
        rows = [asdict(row) | {"difference": row.difference and round(row.difference, 4)} for row in self.rows]
        return {"exit_code": self.exit_code, "summary": self.summary(), "rows": rows}

    def to_rich(self) -> RenderableType:
        """What rich prints."""
        return self

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The rows that differ, if any, and the summary."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        style = {Verdict.REGRESSION: "bold red", Verdict.IMPROVED: "green"}
        differing = [row for row in self.rows if row.verdict != Verdict.OK]
        if differing:
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
            for head in ("verdict", "model", "task", "language"):
                table.add_column(head, no_wrap=head == "verdict")
            for head in ("was", "is", "change", "allowed"):
                table.add_column(head, justify="right", no_wrap=True)
            limit = 40 if options.max_width > 110 else 10
            for row in differing:
                found, difference = ("–", "") if row.found is None else (f"{row.found:.2f}", f"{row.difference:+.2f}")
                verdict = Text(row.verdict, style=style.get(row.verdict, "yellow"))
                numbers = f"{row.expected:.2f}", found, difference, f"-{row.tolerance:g}"
                names = ("\n".join(wrap(name, limit)) for name in (row.model.removeprefix("xalign/"), row.task))
                table.add_row(verdict, *names, row.language, *numbers)
            yield from (table, "")
        yield Text(self.summary(), style="bold")


def by_language(values: Mapping[str, float]) -> dict[str, float]:
    """Scores by language: of pairs ``a-b``, the mean of Into X and From X (or the one there is); else by subset."""
    if not language_pairs(values):
        return dict(values)
    sides = into_and_from(values)
    languages = sorted(sides[0].keys() | sides[1].keys())
    return {one.replace("_", "-"): fmean(side[one] for side in sides if one in side) for one in languages}


def make_baseline(
    results: Results,
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
) -> dict[str, Any]:
    """The content of ``baseline.json``; numbers in percent, of each task's main score.

    Args:
        results: The results that are to be kept up.
        models: Names, with or without ``xalign/``, directories or hub ids; None is all.
        tasks: Names; None is all.

    Raises:
        ResultsError: A name has no results, or one of the chosen results is unreadable.
    """
    chosen = set(choose_models(results.models, models)), set(choose(results.tasks, tasks, "task"))
    broken = [path for (model, task), path in results.unreadable.items() if model in chosen[0] and task in chosen[1]]
    if broken:
        raise ResultsError(f"No baseline: {', '.join(map(str, broken))} cannot be read; `xalign run` makes it anew.")
    scores: dict[str, dict[str, Any]] = {}
    for (model, task), table in results.tables.items():
        values = _percent(table)
        if model in chosen[0] and task in chosen[1] and values:
            scores.setdefault(model, {})[task] = {
                "dataset_revision": table.dataset_revision,
                "subsets": len(values),
                "mean": round(fmean(values.values()), 4),
                "languages": {language: round(value, 4) for language, value in by_language(values).items()},
            }
    return {"tolerance": {"default": TOLERANCE}, "scores": scores}


def write_baseline(path: Path, baseline: Mapping[str, Any]) -> None:
    """Write a baseline; tolerances, and scores of other models and tasks, that the file has are kept."""
    try:
        old = read_baseline(path)
    except ResultsError:
        old = {"tolerance": {}, "scores": {}}
    scores = {
        model: dict(sorted({**old["scores"].get(model, {}), **baseline["scores"].get(model, {})}.items()))
        for model in sorted(old["scores"].keys() | baseline["scores"].keys())
    }
    new = {"tolerance": {**baseline["tolerance"], **old["tolerance"]}, "scores": scores}
    atomic_write_text(path, json.dumps(new, indent=1, ensure_ascii=False) + "\n")


def read_baseline(path: Path) -> dict[str, Any]:
    """The baseline at ``path``.

    Raises:
        ResultsError: It is missing or not a baseline.
    """
    try:
        baseline = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(baseline[key], dict) for key in ("tolerance", "scores")):
            return dict(baseline)
    except FileNotFoundError:
        raise ResultsError(f"No baseline at {path}; `xalign gate --update` makes one of the results at hand.") from None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise ResultsError(f"{path} is no baseline (JSON with 'tolerance' and 'scores'); restore it or make it anew.")


def compare(
    results: Results,
    baseline: Mapping[str, Any],
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
) -> GateReport:
    """Every number of the baseline against the results.

    Subsets in languages that the baseline does not have are left out, so that a wider run is compared like for like.

    Args:
        results: What there is now.
        baseline: From :func:`read_baseline`.
        models: Names, with or without ``xalign/``, directories or hub ids; None is all.
        tasks: Names; None is all.

    Raises:
        ResultsError: The baseline lacks a field, or neither it nor the results have a name.
    """
    tolerances = {"default": TOLERANCE, **baseline["tolerance"]}
    rows: list[GateRow] = []
    try:
        entries = {(model, task): entry for model, each in baseline["scores"].items() for task, entry in each.items()}
        keys = {*entries, *results.tables}
        kept = choose_models(sorted({model for model, _ in keys}), models)
        chosen = set(product(kept, choose(sorted({task for _, task in keys}), tasks, "task")))
        guarded = chosen & entries.keys()
        for model, task in guarded:
            tolerance = float(tolerances.get(task, tolerances["default"]))
            rows += _judge(results.tables.get((model, task)), entries[model, task], (model, task), tolerance)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"The baseline is malformed ({type(error).__name__}: {error}); make it anew.") from None
    rows.sort(key=lambda row: (_ORDER.index(row.verdict), row.model, row.task, row.language != "mean", row.language))
    unreadable = tuple(path for key, path in results.unreadable.items() if key in guarded)
    return GateReport(tuple(rows), unreadable, tuple(key for key in results.tables if key in chosen - guarded))


def _judge(
    table: TaskScores | None, entry: Mapping[str, Any], key: tuple[str, str], tolerance: float
) -> Iterator[GateRow]:
    expected = {language: float(value) for language, value in {"mean": entry["mean"], **entry["languages"]}.items()}
    if not all(map(isfinite, (tolerance, *expected.values()))):
        raise ValueError(f"{key} has numbers that are none")
    values = _percent(table) if table else {}
    if not values or (table and table.dataset_revision != entry["dataset_revision"]):
        verdict = Verdict.DATA_CHANGED if values else Verdict.MISSING
        yield GateRow(*key, "mean", expected["mean"], None, tolerance, verdict)
        return
    pairs = language_pairs(values) or {}
    values = {
        subset: value
        for subset, value in values.items()
        if all(one.replace("_", "-") in expected for one in pairs.get(subset, ())) and (pairs or subset in expected)
    }
    found = by_language(values)
    whole = (
        bool(values) and len(values) == entry.get("subsets", len(values)) and found.keys() >= entry["languages"].keys()
    )
    if whole:
        found["mean"] = fmean(values.values())
    elif language_pairs(values):  # means over other pairs than the baseline's cannot be compared
        found = {}
    for language, value in expected.items():
        if language in found:
            fall = value - found[language]
            verdict = Verdict.REGRESSION if fall > tolerance + _NOISE else Verdict.OK
            verdict = Verdict.IMPROVED if -fall > tolerance + _NOISE else verdict
            yield GateRow(*key, language, value, found[language], tolerance, verdict)
        else:
            yield GateRow(*key, language, value, None, tolerance, Verdict.MISSING)


def _percent(table: TaskScores) -> dict[str, float]:
    return {subset: 100 * value for subset, value in table.values().items()}
