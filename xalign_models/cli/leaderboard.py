"""``xalign leaderboard``."""

import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from xalign_models.cli.common import expect_many_objects, language_codes, out, print_json, say, split_list
from xalign_models.cli.options import Json, Models, Output, Tasks
from xalign_models.errors import ResultsError
from xalign_models.plugins import BENCHMARKS, TASKS
from xalign_models.tables.board import Board
from xalign_models.tables.formats import FORMATS, to_json, to_markdown

Format = Literal["table", "tsv", "csv", "markdown", "latex", "json"]


def leaderboard(
    models: Models = None,
    tasks: Tasks = None,
    output: Output = ".",
    form: Annotated[
        Format | None,
        Option("--format", "-f", help="Output format; by default a table in a terminal, and TSV in a pipe."),
    ] = None,
    json: Json = False,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown: short for --format markdown.")] = False,
    narrow: Annotated[
        bool, Option("--narrow", help="Print Markdown with scores and differences alone, without the legend.")
    ] = False,
    by_language: Annotated[bool, Option("--by-language", help="Show the scores of one task by language.")] = False,
    means: Annotated[bool, Option("--means", help="Print CSV with a line per model, task and language.")] = False,
    published: Annotated[bool, Option(help="Show published numbers beside ours, with --by-language.")] = True,
    benchmark: Annotated[
        str | None,
        Option(help='Show the tasks of a benchmark, e.g. "XAlign(parallel)" or "XAlign(LUSIFER, te)".'),
    ] = None,
    studies: Annotated[
        bool, Option("--studies", help="Show studies (ablations, seeds, controls) in place of models.")
    ] = False,
    languages: Annotated[
        list[str] | None,
        Option(
            help="Languages to average over; by default the set that gives the most scores. Rows that lack one are "
            "listed apart."
        ),
    ] = None,
    html: Annotated[
        Path | None, Option("--html", help="Write the board as one page, DIR/index.html, that opens offline.")
    ] = None,
    serve: Annotated[bool, Option("--serve", help="Show the page of --html on a local port.")] = False,
) -> None:
    """Compare models on tasks, with the difference to each model's unaligned backbone."""
    expect_many_objects()
    chosen_models, chosen_tasks = split_list(models) or None, split_list(tasks)
    _refuse_several_forms({
        "--html": html and "html", "--means": means and "csv", "--by-language": (html or means) and by_language,
        "--format": form, "--json": json and "json", "--markdown": markdown and "markdown",
        "--narrow": narrow and "markdown",
    })  # fmt: skip
    if serve and html is None:
        raise ResultsError("--serve needs a page; add --html DIR.")
    if html is not None and languages:
        raise ResultsError("--languages has no effect on the page, whose reader chooses them; leave it out.")
    if (html is not None or means or by_language) and (benchmark or studies):
        shown = "--html" if html is not None else "--means" if means else "--by-language"
        raise ResultsError(f"{'--benchmark' if benchmark else '--studies'} has no effect with {shown}; leave one out.")
    if benchmark and chosen_tasks:
        raise ResultsError("--benchmark and --tasks both choose tasks; leave one out.")
    if (languages or studies) and benchmark and benchmark in BENCHMARKS and BENCHMARKS[benchmark].board:
        option = "--languages" if languages else "--studies"
        raise ResultsError(f"{option} has no effect on {benchmark}, which has a board of its own; leave it out.")
    if html is not None:
        _write_page(Path(output), html, chosen_models, chosen_tasks or None, serve)
        return
    from xalign_models.boards.leaderboard import detail
    from xalign_models.results.reading import read_results

    codes = language_codes(languages, None)
    if means:
        from xalign_models.boards.means import means_csv

        sys.stdout.write(means_csv(read_results(Path(output), tasks=chosen_tasks or None), chosen_models, codes))
        return
    form = form or ("json" if json else "markdown" if markdown or narrow else None)
    if by_language and len(chosen_tasks) != 1:
        raise ResultsError("--by-language shows one task; name one with -t.")
    study = studies if studies or chosen_models is None else None
    boards = [] if by_language else [make(chosen_models, chosen_tasks or None, Path(output), benchmark, codes, study)]
    if by_language or (len(chosen_tasks) == 1 and not benchmark and form is None and out.is_terminal):
        results = read_results(Path(output), tasks=chosen_tasks)
        boards.append(detail(results, chosen_tasks[0], models=chosen_models, published=published, languages=codes))
    for board in boards:
        if narrow:
            sys.stdout.write(to_markdown(board, narrow=True))
        else:
            show(board, form)


def _refuse_several_forms(forms: Mapping[str, object]) -> None:
    """Refuse options that ask for different forms, of which only one could have effect."""
    given = {form: option for option, form in forms.items() if form}
    if len(given) > 1:
        raise ResultsError(f"{' and '.join(given.values())} ask for several forms of output; choose one.")


def _write_page(
    output: Path, folder: Path, models: Collection[str] | None, tasks: Collection[str] | None, serve: bool
) -> None:
    from xalign_models.atlas.measured import with_measured
    from xalign_models.atlas.update import current
    from xalign_models.page import write_page
    from xalign_models.results.reading import read_results

    results = read_results(output)
    atlas = with_measured(current(), results)
    path = write_page(results, folder, _describe(results.tasks), models, tasks, atlas)
    say(f"wrote {path}")
    if serve:
        from xalign_models.page.serving import server

        with server(folder) as serving:
            say(f"http://127.0.0.1:{serving.server_address[1]}/ shows the page; Ctrl-C stops the server.")
            serving.serve_forever()


def _describe(tasks: Collection[str]) -> dict[str, dict[str, Any]]:
    """Facts of the tasks that are registered or that mteb knows, which is imported only if a task is not registered."""
    facts = {name: TASKS.facts(name) for name in tasks if name in TASKS and "type" in TASKS.facts(name)}
    if others := set(tasks) - facts.keys():
        from xalign_models.models.mteb import described

        facts |= {name: vars(known) | {"domains": known.domains or []} for name, known in described(others).items()}
    return {
        name: {field: of[field] for field in ("type", "domains", "description", "reference")}
        for name, of in facts.items()
    }


def make(
    models: Collection[str] | None,
    tasks: Collection[str] | None,
    output: Path,
    benchmark: str | None = None,
    languages: Collection[str] | None = None,
    study: bool | None = None,
) -> Board:
    """The board of some models and tasks, or of a benchmark, ours or mteb's.

    A benchmark of the LUSIFER paper has a board of its own, unless another task is asked for.
    """
    from xalign_models.boards.leaderboard import leaderboard as make_board
    from xalign_models.boards.studies import models_alone
    from xalign_models.results.reading import read_results

    if study is False and not benchmark:
        with suppress(ResultsError):  # there are studies alone; the error of all results says so
            results = read_results(output, chosen=models_alone)
            return make_board(results, models=models, tasks=tasks, languages=languages, study=study)
    results = read_results(output)
    if benchmark:
        from xalign_models.models.mteb import tasks_of

        if ours := benchmark in BENCHMARKS:
            names = [part.task for part in BENCHMARKS[benchmark].parts]
        else:
            names = [task.metadata.name for task in tasks_of(benchmark)]
        if ours and BENCHMARKS[benchmark].board and set(tasks or ()) <= set(names):
            board: Board = BENCHMARKS[benchmark].make_board(results, benchmark, models)
            return board
        tasks = tasks or [name for name in names if name in results.tasks]
        if not tasks:
            raise ResultsError(f'No results of {benchmark}; score models with `xalign run --benchmark "{benchmark}"`.')
    return make_board(results, models=models, tasks=tasks, languages=languages, study=study)


def show(board: Board, form: Format | None = None) -> None:
    """Print a board, by default as a table in a terminal and as TSV in a pipe."""
    form = form or ("table" if out.is_terminal else "tsv")
    if form == "table":
        out.print(board)
    elif form == "json":
        print_json(to_json(board))
    else:
        sys.stdout.write(FORMATS[form](board))
