"""The throughput gate: speeds before and after, relative to a reference timed in turns with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from xalign_models.boards.baseline import DEFAULT
from xalign_models.boards.leaderboard import choose
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict, decide
from xalign_models.errors import FileError, ResultsError
from xalign_models.files import MOST_JSON, is_number, parse_json, read_bytes, read_json

TOLERANCE = 10.0
"""Default tolerance: percent that a speed may fall."""
_SAME = ("device", "dtype", "threads", "against")


def compare_throughput(old: Path, new: Path, tolerance: Mapping[str, float]) -> GateReport:
    """Speed of each benchmark relative to its reference, new over old, in percent of the old one.

    Times on two machines, or on a busy one, do not compare. Therefore every benchmark times a reference in turns with
    itself, and their ratios are compared: of processor time, or of wall-clock time on a GPU. If both files have a ratio
    per round, a fall beyond the tolerance is proven against the rounds' spread (Welch's test on the logarithms,
    corrected for all benchmarks).

    Args:
        old: Earlier output of ``pytest benchmarks --benchmark-json=FILE`` or ``--bench-findings=FILE``.
        new: New output, likewise.
        tolerance: Percent that a speed may fall, by module (``test_align``) or ``default``.

    Raises:
        ResultsError: A file is not pytest-benchmark's, none of its benchmarks has a ratio, or a name is unknown.
    """
    before, after = _read(old), _read(new)
    choose(sorted({module for module, _ in {**before, **after}}), tolerance.keys() - {DEFAULT}, "module")
    allowed = {DEFAULT: TOLERANCE, **tolerance}
    rows = [
        _row(key, info, after.get(key), allowed.get(key[0], allowed[DEFAULT])) for key, info in sorted(before.items())
    ]
    return GateReport(tuple(decide(rows)), tuple(key for key in after if key not in before))


def _read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(module, benchmark) -> notes of the benchmarks with a reference."""
    try:
        if path.suffix == ".jsonl":  # findings, written as a run goes
            entries = [parse_json(line, str(path)) for line in read_bytes(path, MOST_JSON).splitlines()]
        else:
            entries = read_json(path)["benchmarks"]
        benchmarks = {
            (Path(entry["fullname"].split("::")[0]).stem, entry["name"]): entry["extra_info"]
            for entry in entries
            if "ratio" in entry["extra_info"]
        }
    except FileError as error:
        raise ResultsError(f"{error} Write it with --benchmark-json.") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read ({error.strerror}); write it with --bench-findings.") from None
    except (KeyError, TypeError, AttributeError):
        benchmarks = {}
    if not benchmarks:
        raise ResultsError(f"{path} has no benchmark with a ratio; write it with pytest benchmarks --benchmark-json.")
    return benchmarks


def _row(key: tuple[str, str], old: Mapping[str, Any], new: Mapping[str, Any] | None, tolerance: float) -> GateRow:
    unknown = GateRow("throughput", *key, tolerance, Verdict.CANNOT_TELL, "missing: the benchmark did not run")
    if new is None:
        return unknown
    differing = [
        f"{field} {old.get(field)} before, {new.get(field)} now" for field in _SAME if old.get(field) != new.get(field)
    ]
    if differing:
        return unknown._replace(reason=f"not comparable: {', '.join(differing)}")
    before, after = (_ratios(info) for info in (old, new))
    if not _possible(after):
        return unknown._replace(verdict=Verdict.FAIL, reason="impossible ratio")
    if not _possible(before):
        return unknown._replace(reason="impossible ratio before")
    row = unknown._replace(old=100.0, new=100 * median(after) / median(before))
    if min(len(before), len(after)) < 3:
        return row
    from scipy.stats import ttest_ind

    allowed = math.log(max(1 - tolerance / 100, 1e-9))
    test = ttest_ind(np.log(after) - allowed, np.log(before), equal_var=False, alternative="less")
    end = test.confidence_interval(0.95).high + allowed  # one-sided; the lower end is as far from the middle
    middle = float(np.mean(np.log(after)) - np.mean(np.log(before)))
    if not math.isfinite(end):  # no spread at all
        return row
    low, high = (100 * math.expm1(middle + sign * (end - middle)) for sign in (-1, 1))
    return row._replace(low=low, high=high, p=float(test.pvalue))


def _ratios(info: Mapping[str, Any]) -> list[Any]:
    """The reference's time over ours, per round if recorded: above 1, ours is faster."""
    kind = "processor_ratio" if info.get("device") == "cpu" and "processor_ratio" in info else "ratio"
    rounds = info.get(f"{kind}s")
    return rounds if isinstance(rounds, list) and rounds else [info[kind]]


def _possible(ratios: list[Any]) -> bool:
    return all(is_number(ratio) and ratio > 0 for ratio in ratios)
