"""Reports of a gate: JUnit, GitHub's annotations and GitHub's step summary."""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree as ET

from xalign_models.boards.verdicts import MOST_SHOWN, GateReport, Verdict
from xalign_models.tables.escaping import escape

_MOST_ANNOTATIONS = 10
"""Maximum number of annotations per level that GitHub shows in a step."""


def junit(report: GateReport) -> str:
    """A test suite per model, a test case per task and language; scores that cannot be judged are errors."""
    failures, errors = (sum(row.verdict == verdict for row in report.rows) for verdict in _KINDS)
    root = ET.Element("testsuites", tests=str(len(report.rows)), failures=str(failures), errors=str(errors))
    for model, rows in groupby(sorted(report.rows, key=lambda row: row.key), lambda row: row.model):
        suite = ET.SubElement(root, "testsuite", name=escape(model))
        cases = list(rows)
        for verdict, kind in _KINDS.items():
            suite.set(f"{kind}s", str(sum(row.verdict == verdict for row in cases)))
        suite.set("tests", str(len(cases)))
        for row in cases:
            case = ET.SubElement(suite, "testcase", classname=escape(row.task), name=escape(row.language), time="0")
            if row.verdict in _KINDS:
                ET.SubElement(case, _KINDS[row.verdict], message=row.explained(), type=row.verdict)
    if not report.rows:  # no test case would be shown as success
        case = ET.SubElement(ET.SubElement(root, "testsuite", name="gate", tests="1", errors="1"), "testcase")
        case.set("name", "gate")
        ET.SubElement(case, "error", message=report.summary())
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_KINDS = {Verdict.FAIL: "failure", Verdict.CANNOT_TELL: "error"}


def workflow_commands(report: GateReport) -> list[str]:
    """Workflow commands: errors for scores that fell, warnings for scores that cannot be judged, ten of each."""
    lines = []
    for verdict, command in ((Verdict.FAIL, "error"), (Verdict.CANNOT_TELL, "warning")):
        for row in [row for row in report.rows if row.verdict == verdict][:_MOST_ANNOTATIONS]:
            title = escape(f"{row.task} {row.language}", "property")
            lines.append(f"::{command} title={title}::{escape(f'{row.model}: {row.explained()}', 'github')}")
    return lines


def markdown(report: GateReport) -> str:
    """The summary in bold, then a table of the scores that do not pass."""
    lines = [f"**{report.summary()}**", ""]
    if report.open_rows:
        lines += ["| verdict | model | task | language | why |", "|---|---|---|---|---|"]
        for row in report.open_rows[:MOST_SHOWN]:
            cells = (*(escape(name, "markdown") for name in row.key), escape(row.explained(), "markdown"))
            lines.append(f"| {row.verdict} | {' | '.join(cells)} |")
        if len(report.open_rows) > MOST_SHOWN:
            lines.append(f"\n{len(report.open_rows) - MOST_SHOWN} more, not shown here.")
    return "\n".join(lines) + "\n"
