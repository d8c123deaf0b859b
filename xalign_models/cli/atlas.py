"""``xalign import | choose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.common import Json, err, out, print_json, print_rows, split_list


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Read results of others into our layout.", no_args_is_help=True)
    group.command("mteb-results")(import_mteb_results)
    app.add_typer(group, name="import")


def import_mteb_results(
    path: Annotated[
        Path,
        typer.Argument(help="A clone of the public results repository, a cache folder of mteb, or a .parquet file."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Root to write results/ below; without it, only report.")
    ] = None,
    models: Annotated[list[str] | None, typer.Option("--models", "-m", help="Hub ids to keep; by default all.")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--tasks", "-t", help="Tasks to keep; by default all.")] = None,
    json: Json = False,
) -> None:
    """Read public results of mteb; name and leave out what is broken, duplicate or impossible.

    Results are comparable within a task, a revision of its text and a metric; the report has a line for each.
    """
    from xalign_models.atlas.imported import comparable, read_public, write_results

    imported = read_public(path, models=split_list(models), tasks=split_list(tasks))
    rows = comparable(imported.results)
    if output is not None:
        write_results(imported.results, output, str(path))
    if json:
        print_json({"comparable": rows, "left_out": imported.problems})
        return
    print_rows(rows, as_json=False, right=("models", "subsets", "scores"))
    for problem in imported.problems:
        err.print(problem, highlight=False, markup=False, soft_wrap=True)
    count = len({result.model for result in imported.results})
    written = f"; wrote {output}/results" if output is not None else "; --output ROOT writes them"
    out.print(
        f"{len(imported.results)} results of {count} models, {len(imported.problems)} left out or cut{written}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
