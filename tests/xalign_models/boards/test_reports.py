"""The reports that other tools read from a gate are whole, well formed and safe."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from xalign_models.boards.reports import junit, markdown, workflow_commands
from xalign_models.boards.verdicts import MOST_SHOWN, GateReport, GateRow, Verdict

FELL = GateRow("m|1", "T", "de\n<b>", 1, Verdict.FAIL, "fell", 80.0, 70.0, -12.0, -8.0, 1e-9)
GONE = GateRow("m|1", "T", "fr", 1, Verdict.CANNOT_TELL, "missing: no new score")
KEPT = GateRow("n", "U", "mean", 1, Verdict.PASS, "kept up", 80.0, 80.0)
REPORT = GateReport((FELL, GONE, KEPT))


def test_junit() -> None:
    root = ET.fromstring(junit(REPORT))
    assert root.attrib == {"tests": "3", "failures": "1", "errors": "1"}
    first, second = root
    assert first.attrib == {"name": "m|1", "tests": "2", "failures": "1", "errors": "1"}
    assert [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")] == [
        ("T", r"de\n<b>"),
        ("T", "fr"),
        ("U", "mean"),
    ]
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == (
        "fell: 80.00 to 70.00 (-10.00, 90% interval -12.00 to -8.00, p 1e-09, allowed -1)"
    )
    (error,) = root.iter("error")
    assert error.attrib["message"] == "missing: no new score"
    assert not list(second[0])


def test_an_empty_report_is_an_error_in_junit() -> None:
    (error,) = ET.fromstring(junit(GateReport(()))).iter("error")
    assert "nothing to compare" in error.attrib["message"]


def test_workflow_commands() -> None:
    assert workflow_commands(REPORT) == [
        r"::error title=T de\n<b>::m|1: fell: 80.00 to 70.00 (-10.00, 90%25 interval -12.00 to -8.00, p 1e-09"
        ", allowed -1)",
        "::warning title=T fr::m|1: missing: no new score",
    ]
    assert len(workflow_commands(GateReport((FELL,) * 50 + (GONE,) * 50))) == 20


def test_markdown() -> None:
    lines = markdown(REPORT).splitlines()
    assert lines[0] == "**Gate FAILED (fail: 1, cannot tell: 1, pass: 1).**"
    assert lines[4].startswith(r"| fail | `m\x7c1` | `T` | `de\n<b>` | `fell: 80.00")
    assert len(lines) == 6
    assert markdown(GateReport((KEPT,))) == "**Gate passed (pass: 1).**\n\n"
    assert markdown(GateReport((FELL,) * (MOST_SHOWN + 5))).endswith("\n5 more, not shown here.\n")
