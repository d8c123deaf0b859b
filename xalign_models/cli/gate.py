"""``xalign gate``."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from xalign_models.cli.common import expect_many_objects, given, out, print_json, print_rows, say, split_list, tell
from xalign_models.cli.options import Json, Models, Output, Tasks
from xalign_models.errors import ResultsError
from xalign_models.paths import atomic_write_text

group = typer.Typer(invoke_without_command=True)


@group.callback()
def gate(
    context: typer.Context,
    output: Output = ".",
    against: Annotated[
        Path | None,
        Option(help="Folder of old results, or a baseline file; by default results/baseline.json under --output."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        Option(
            help="Points that a score may fall: 1 for all, FloresPrecision=2 for a task, languages=3 for each language."
        ),
    ] = None,
    update: Annotated[bool, Option("--update", help="Write the results' scores into the baseline file.")] = False,
    throughput: Annotated[
        tuple[Path, Path] | None,
        Option(
            help="Compare the speeds in two files of pytest's --benchmark-json, OLD NEW; --tolerance is in percent."
        ),
    ] = None,
    models: Models = None,
    tasks: Tasks = None,
    junit: Annotated[Path | None, Option(help="Also write JUnit XML to this file.")] = None,
    json: Json = False,
) -> None:
    """Compare new results with old ones. Exits with 0 when no score fell, 1 when one did, 3 when it cannot judge.

    Wrong usage exits with 2. Under GitHub Actions, the command also writes annotations and the step's summary.
    """
    if context.invoked_subcommand:
        _refuse(given(context), context.invoked_subcommand)
        return
    expect_many_objects()
    from xalign_models.boards import baseline, reports
    from xalign_models.boards.gate import compare, read_new
    from xalign_models.boards.throughput import compare_throughput
    from xalign_models.results.reading import read_results

    path = against or Path(output) / "results" / "baseline.json"
    chosen = split_list(models) or None, split_list(tasks) or None
    tolerances = _tolerances(tolerance)
    if throughput:
        if against or update or any(chosen):
            raise ResultsError("--throughput compares two files; leave out --against, --update, -m and -t.")
        report = compare_throughput(*throughput, baseline.parse_tolerances(tolerances))
    elif update:
        if json or junit:
            raise ResultsError("--update writes a baseline and compares nothing; leave out --json and --junit.")
        if path.is_dir():
            raise ResultsError(f"--update writes a file, and {path} is a folder; name a file.")
        new = baseline.make_baseline(read_results(Path(output)), *chosen)
        baseline.write_baseline(path, new, baseline.parse_tolerances(tolerances))
        say(f"wrote {path}")
        return
    else:
        report = compare(read_new(Path(output)), baseline.read_before(path, tolerances), *chosen)
    if junit:
        _write_junit(junit, reports.junit(report))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(reports.markdown(report))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in reports.workflow_commands(report):
            tell(line)
    if json:
        print_json(report.to_json())
    else:
        out.print(report)
    raise typer.Exit(report.exit_code)


def _refuse(options: list[str], command: str) -> None:
    """Refuse options before a command, where they have no effect."""
    if options:
        raise ResultsError(f"{options[0]} has no effect before {command}; write it after {command}, or leave it out.")


def _tolerances(values: list[str] | None) -> list[str]:
    """The tolerances; a decimal comma is refused, which would make two of one."""
    if comma := [text for text in values or () if re.search(r"=\s*\d+,\d+\s*(,|$)", text)]:
        raise ResultsError(
            f"--tolerance {comma[0]} is unclear: write decimals with a point, and a number for all first."
        )
    return split_list(values)


def _write_junit(path: Path, text: str) -> None:
    """Write JUnit XML; a file of anything else is refused."""
    from xalign_models.files import read_bytes

    ours = rb"\s*(<\?xml[^>]*>\s*)?(<testsuite|\Z)"
    if os.path.lexists(path) and not (path.is_file() and re.match(ours, read_bytes(path))):
        raise ResultsError(f"--junit {path} exists and is not JUnit XML; name a new file.")
    atomic_write_text(path, text)


@group.command()
def plan(
    tolerance: Annotated[float, Option(min=0.01, max=100, help="Points that a score may fall.")] = 1,
    churn: Annotated[float, Option(min=0, max=100, help="Percent of the answers that change by chance.")] = 4,
    languages: Annotated[int, Option(min=1, help="Number of languages, all of which must pass.")] = 1,
    power: Annotated[float, Option(min=1, max=99, help="Percent of the comparisons that pass.")] = 80,
    json: Json = False,
) -> None:
    """Print how many items per language a tolerance needs for a model that did not fall to pass."""
    from xalign_models.results.proportions import items_needed

    row = {"tolerance": tolerance, "churn": churn, "languages": languages, "power": power}
    print_rows([{**row, "items": items_needed(tolerance / 100, churn / 100, languages, power / 100)}], json)
