"""``xalign leaderboard``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xalign_models.cli.app import Json, Output, out, print_json, split_list

if TYPE_CHECKING:
    from xalign_models.evaluation.board import Board

Models = Annotated[list[str] | None, typer.Option("--models", "-m", help="Names, directories or hub ids.")]
Tasks = Annotated[list[str] | None, typer.Option("--tasks", "-t", help="Names of tasks, ours or mteb's.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(leaderboard)


def leaderboard(
    models: Models = None,
    tasks: Tasks = None,
    output: Output = ".",
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    published: Annotated[bool, typer.Option(help="With one task: show published numbers beside ours.")] = True,
    benchmark: Annotated[
        str | None, typer.Option(help='Tasks of a benchmark, e.g. "XAlign(parallel)" or "XAlign(LUSIFER, te)".')
    ] = None,
) -> None:
    """Models x tasks from the results, with the difference to each model's unaligned backbone; one task in detail."""
    from xalign_models.evaluation.leaderboard import detail
    from xalign_models.evaluation.results import read_results

    chosen_models, chosen_tasks = split_list(models) or None, split_list(tasks)
    board = make(chosen_models, chosen_tasks or None, Path(output), benchmark)
    if json:
        print_json(board.to_json())
    elif markdown:
        out.print(board.to_markdown(), highlight=False, markup=False, soft_wrap=True)
    else:
        show(board)
        if len(chosen_tasks) == 1 and not benchmark:
            results = read_results(Path(output), tasks=chosen_tasks)
            show(detail(results, chosen_tasks[0], models=chosen_models, published=published))


def make(
    models: Collection[str] | None, tasks: Collection[str] | None, output: Path, benchmark: str | None = None
) -> Board:
    """The board of some models and tasks, or of a benchmark.

    Args:
        models: As :func:`xalign_models.evaluation.leaderboard.leaderboard` takes them; None is all.
        tasks: Names of tasks; None is all, or the benchmark's.
        output: Root of the results.
        benchmark: Name of one of ours; the LUSIFER paper's have a board of their own with the published scores.

    Raises:
        ResultsError: No such results, or no such benchmark.
    """
    from xalign_models.errors import ResultsError
    from xalign_models.evaluation.leaderboard import leaderboard as make_board
    from xalign_models.evaluation.results import read_results

    results = read_results(output)
    if benchmark:
        from tasks import BENCHMARKS
        from tasks.lusifer_benchmark import board, data_sets

        if benchmark in data_sets():
            return board(results, benchmark, models)
        if tasks is None and benchmark not in BENCHMARKS:
            known = ", ".join((*BENCHMARKS, *data_sets()))
            raise ResultsError(f"Unknown benchmark {benchmark!r}; there are {known}.")
        tasks = tasks or [task for task in BENCHMARKS[benchmark] if task in results.tasks]
        if not tasks:
            raise ResultsError(f'No results of {benchmark}; `xalign run --benchmark "{benchmark}"` makes them.')
    return make_board(results, models=models, tasks=tasks)


def show(board: Board) -> None:
    """Print a board as a table."""
    out.print(board.to_rich())
