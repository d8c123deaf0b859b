"""``xalign gate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.app import Json, Output, out, print_json, split_list
from xalign_models.cli.leaderboard import Models, Tasks


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(gate)


def gate(
    output: Output = ".",
    baseline: Annotated[Path | None, typer.Option(help="By default results/baseline.json under --output.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline from the results at hand.")] = False,
    models: Models = None,
    tasks: Tasks = None,
    json: Json = False,
) -> None:
    """Compare results with the baseline: exit 0 as good, 1 a regression, 2 it cannot judge."""
    from xalign_models.evaluation import gate as gates
    from xalign_models.evaluation.results import read_results

    path = baseline or Path(output) / "results" / "baseline.json"
    results = read_results(Path(output))
    chosen = split_list(models) or None, split_list(tasks) or None
    if update:
        gates.write_baseline(path, gates.make_baseline(results, *chosen))
        out.print(f"wrote {path}", highlight=False, soft_wrap=True)
        return
    report = gates.compare(results, gates.read_baseline(path), *chosen)
    if json:
        print_json(report.to_json())
    else:
        out.print(report.to_rich())
    raise typer.Exit(report.exit_code)
