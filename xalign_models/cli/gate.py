"""``xalign gate``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.common import Json, Models, Output, Tasks, err, out, print_json, split_list
from xalign_models.errors import ResultsError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(gate)


def gate(
    output: Output = ".",
    against: Annotated[
        Path | None,
        typer.Option(help="A folder of old results, or a baseline; by default results/baseline.json under --output."),
    ] = None,
    tolerance: Annotated[
        list[str] | None, typer.Option(help="Points that a score may fall: 1, or FloresPrecision=2 for a task.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the baseline from the results under --output.")
    ] = False,
    throughput: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Compare two files of --benchmark-json, OLD NEW, instead of scores; tolerance in percent."),
    ] = None,
    models: Models = None,
    tasks: Tasks = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file, too.")] = None,
    json: Json = False,
) -> None:
    """Compare new results with old ones. Exits with 0 if no score fell, 1 if one did, 3 if it cannot tell.

    Wrong usage exits with 2. Under GitHub Actions, annotations and the step's summary are written too.
    """
    from xalign_models.boards import baseline, reports
    from xalign_models.boards.gate import compare
    from xalign_models.boards.throughput import compare_throughput
    from xalign_models.results.reading import read_results

    path = against or Path(output) / "results" / "baseline.json"
    chosen = split_list(models) or None, split_list(tasks) or None
    tolerances = split_list(tolerance)
    if throughput:
        if against or update or any(chosen):
            raise ResultsError("--throughput compares two files of benchmarks; leave out --against, --update, -m, -t.")
        report = compare_throughput(*throughput, baseline.parse_tolerances(tolerances))
    elif update:
        if path.is_dir():
            raise ResultsError(f"--update writes a baseline file, and {path} is a folder; name a file.")
        new = baseline.make_baseline(read_results(Path(output)), *chosen)
        baseline.write_baseline(path, new, baseline.parse_tolerances(tolerances))
        out.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
        return
    else:
        report = compare(read_results(Path(output)), baseline.read_before(path, tolerances), *chosen)
    if junit:
        junit.write_text(reports.junit(report), encoding="utf-8")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(reports.markdown(report))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in reports.workflow_commands(report):
            err.print(line, highlight=False, markup=False, soft_wrap=True)
    if json:
        print_json(report.to_json())
    else:
        out.print(report.to_rich())
    raise typer.Exit(report.exit_code)
