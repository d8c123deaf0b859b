"""The throughput gate: ratios of processor time, before and after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_models.boards.throughput import compare_throughput
from xalign_models.errors import ResultsError


@pytest.fixture
def write(tmp_path):
    """Writes what pytest-benchmark would: processor-time ratios by benchmark; more fields by keyword."""

    def run(name, rounds, **info):
        same = {"device": "cpu", "dtype": "float32", "threads": 1, "against": "mteb", "ratios": [9, 9, 9], "ratio": 9}
        benchmarks = [
            {
                "name": key,
                "fullname": f"benchmarks/test_align.py::{key}",
                "stats": {},
                "extra_info": {**same, "processor_ratios": ratios, "processor_ratio": ratios[len(ratios) // 2], **info},
            }
            for key, ratios in rounds.items()
        ]
        benchmarks.append({"name": "test_plain", "fullname": "benchmarks/test_align.py::test_plain", "extra_info": {}})
        path = tmp_path / name
        path.write_text(json.dumps({"benchmarks": benchmarks}))
        return path

    return run


@pytest.mark.parametrize(
    ("after", "verdict", "code"),
    [
        ([2.0, 2.02, 1.98, 2.01, 1.99], "pass", 0),
        ([1.6, 1.62, 1.58, 1.61, 1.59], "fail", 1),  # a fifth slower
        ([1.9, 1.92, 1.88, 1.91, 1.89], "pass", 0),  # within 10%
        ([3.0, 3.02, 2.98, 3.01, 2.99], "pass", 0),
        ([1.2, 2.6, 1.3, 2.5, 1.7], "cannot tell", 3),  # slower in the middle, within the spread
        ([1.6], "fail", 1),  # without rounds the tolerance decides
        ([1.85], "pass", 0),
        ([float("nan")] * 5, "fail", 1),
        ([0.0] * 5, "fail", 1),
    ],
)
def test_verdicts(write, after, verdict: str, code: int) -> None:
    before = [2.0, 2.04, 1.96, 2.02, 1.98]
    report = compare_throughput(write("old", {"t": before}), write("new", {"t": after}), {})
    assert ([str(row.verdict) for row in report.rows], report.exit_code) == ([verdict], code)
    assert report.rows[0].key == ("throughput", "test_align", "t")


def test_chance_is_corrected_for_the_number_of_benchmarks(write) -> None:
    before, after = [2.0, 2.3, 1.7, 2.1, 1.9], [1.5, 1.7, 1.3, 1.6, 1.45]
    alone = compare_throughput(write("old", {"t": before}), write("new", {"t": after}), {})
    others = {f"u{i}": [2.0, 2.01, 1.99] for i in range(40)}
    many = compare_throughput(write("old", {"t": before, **others}), write("new", {"t": after, **others}), {})
    verdicts = {row.language: str(row.verdict) for row in many.rows}
    assert (alone.rows[0].verdict, verdicts["t"], verdicts["u0"]) == ("fail", "cannot tell", "pass")


def test_a_gpus_ratio_is_of_the_clock(write) -> None:
    old = write("old", {"t": [2.0] * 3}, device="H100", ratios=[4.0, 4.1, 3.9])
    new = write("new", {"t": [2.0] * 3}, device="H100", ratios=[2.0, 2.1, 1.9])
    (row,) = compare_throughput(old, new, {}).rows
    assert (row.verdict, row.new) == ("fail", pytest.approx(50))


def test_what_cannot_be_compared_is_said(write) -> None:
    old = write("old", {"t": [2.0] * 3, "gone": [1.0]})
    new = write("new", {"t": [2.0] * 3, "fresh": [1.0]}, dtype="bfloat16")
    report = compare_throughput(old, new, {})
    assert {row.language: row.reason for row in report.rows} == {
        "t": "not comparable: dtype float32 before, bfloat16 now",
        "gone": "missing: the benchmark did not run",
    }
    assert (report.exit_code, report.unguarded) == (3, (("test_align", "fresh"),))


def test_tolerances_are_by_module(write) -> None:
    old, new = write("old", {"t": [2.0]}), write("new", {"t": [1.6]})
    assert compare_throughput(old, new, {"test_align": 25}).exit_code == 0
    assert compare_throughput(old, new, {"default": 25, "test_align": 15}).exit_code == 1
    with pytest.raises(ResultsError, match=r"module 'test_aligm'; there are results of test_align"):
        compare_throughput(old, new, {"test_aligm": 25})


@pytest.mark.parametrize("content", [None, "{", "[]", '{"benchmarks": []}', '{"benchmarks": [1]}'])
def test_other_files_are_refused(write, tmp_path, content: str | None) -> None:
    path = tmp_path / "other"
    if content:
        path.write_text(content)
    with pytest.raises(ResultsError, match=r"other .*--benchmark-json"):
        compare_throughput(write("old", {"t": [2.0]}), path, {})


@pytest.mark.slow
def test_the_gate_compares_benchmarks(write) -> None:
    old, new = write("old", {"t": [2.0] * 5}), write("new", {"t": [1.0] * 5})
    for arguments, status, said in (((old, new), 1, "fell: 100.00 to 50.00"), ((old, "no"), 2, "no cannot be read")):
        done = subprocess.run(
            [sys.executable, "-m", "xalign_models.cli", "gate", "--throughput", *map(str, arguments)],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status
        assert said in " ".join((done.stdout + done.stderr).split())


def test_findings_line_by_line_compare_as_well(write, tmp_path):
    """A run writes its findings as it goes, so that an interrupted one can be compared too."""
    whole = write("old.json", {"test_a": [2.0, 2.1, 1.9], "test_b": [3.0, 3.1, 2.9]})
    lines = tmp_path / "new.jsonl"
    entries = json.loads(whole.read_text())["benchmarks"][:1]
    lines.write_text("".join(json.dumps({"fullname": one["fullname"], **one}) + "\n" for one in entries))
    found = {row.language: row.verdict for row in compare_throughput(whole, lines, {}).rows}
    assert found == {"test_a": "pass", "test_b": "cannot tell"}
