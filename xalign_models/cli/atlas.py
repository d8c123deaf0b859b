"""``xalign import | choose | atlas``."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from xalign_models.cli.common import print_json, print_rows, say, split_list, tell
from xalign_models.cli.options import Json
from xalign_models.errors import ModelError, ResultsError, plural
from xalign_models.paths import atomic_file

if TYPE_CHECKING:
    from xalign_models.atlas.choose import ModelRanking, RankedModel

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


group = typer.Typer(help="Import published results into xalign's layout.", no_args_is_help=True)


@group.command("mteb-results")
def import_mteb_results(
    path: Annotated[
        Path,
        Argument(help="Clone of the public results repository, cache folder of mteb, or .parquet file."),
    ],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder to write results/ in; by default only report.")
    ] = None,
    models: Annotated[
        list[str] | None, Option("--models", "-m", help="Hub ids of models to keep; by default all.")
    ] = None,
    tasks: Annotated[list[str] | None, Option("--tasks", "-t", help="Names of tasks to keep; by default all.")] = None,
    json: Json = False,
) -> None:
    """Read mteb's public results; report and leave out broken, duplicate and impossible ones.

    Results are comparable within a task, a revision of its text and a metric; the report has a line for each.
    """
    from xalign_models.atlas.imported import comparable, read_public, write_results

    imported = read_public(path, models=split_list(models), tasks=split_list(tasks))
    rows = comparable(imported.results)
    unwritten = [] if output is None else write_results(imported.results, output, str(path))
    problems = [*imported.problems, *unwritten]
    if json:
        print_json({"comparable": rows, "left_out": problems})
        return
    print_rows(rows, right=("models", "subsets", "scores"))
    for problem in problems:
        tell(problem)
    count = plural(len({result.model for result in imported.results}), "model")
    written = f"; wrote {output}/results" if output is not None else "; --output ROOT writes them"
    say(f"{plural(len(imported.results), 'result')} of {count}, {len(problems)} left out or cut{written}")


def choose(
    languages: Annotated[
        list[str] | None, Option("--languages", "-l", help="Languages by code or name, e.g. sw,German,yo.")
    ] = None,
    task: Annotated[
        str | None,
        Option(help="Kind of task: retrieval, bitext, sts, classification or clustering; by default all."),
    ] = None,
    max_params: Annotated[str | None, Option(help="Maximum number of parameters, e.g. 600M or 1.5B.")] = None,
    license_: Annotated[
        str | None, Option("--license", "--licence", help="Licence such as MIT, or `permissive`.")
    ] = None,
    dim: Annotated[int | None, Option(help="Maximum dimension of the vectors.", min=1)] = None,
    adjusted: Annotated[
        bool,
        Option(
            "--adjusted", help="Subtract the mean gain of training from scores on tasks that a model was trained on."
        ),
    ] = False,
    results: Annotated[
        Path | None,
        Option(help="Folder with your own results to rank beside the published ones; by default the current one."),
    ] = None,
    top: Annotated[int, Option(help="Number of models to print; JSON has all.", min=1)] = 10,
    json: Json = False,
) -> None:
    """Choose a model for given languages by mteb's published results and your own.

    Scores are means over tasks and languages. If a model was not scored on a task, its predicted score counts, and the
    90% interval shows the uncertainty. In the ranking, uncertainty counts against a model.
    """
    from xalign_models.atlas import choose as choosing
    from xalign_models.atlas.scores import scores_of
    from xalign_models.atlas.update import current

    atlas = current()
    known = scores_of(atlas).languages
    codes = tuple(dict.fromkeys(choosing.understood(word, known) for word in split_list(languages)))
    wish = choosing.Wish(codes, task, _size(max_params), license_, dim, adjusted)
    if results is not None or Path("results").is_dir():
        from xalign_models.atlas.measured import with_measured
        from xalign_models.results.reading import read_results

        with nullcontext() if results else suppress(ResultsError):
            atlas = with_measured(atlas, read_results(results or Path()))
    choice = choosing.choose(atlas, wish)
    if json:
        print_json({"wish": asdict(wish), "source": atlas.source, **asdict(choice)})
        return
    rows = [_row(candidate, choice) for candidate in choice.candidates[:top]]
    print_rows(rows, right=("score", "measured", "trained on", "parameters", "memory", "index", "context"))
    for line in _explain(choice):
        tell(f"- {line}")


updates = typer.Typer(help="Update the table of published scores.", no_args_is_help=True)


@updates.command("update")
def update(
    path: Annotated[
        Path, Argument(help="Clone of the public results repository, or .parquet file with models.parquet beside it.")
    ],
    output: Annotated[
        Path | None, Option("--output", "-o", help="File to write; by default the one that choose and the page read.")
    ] = None,
    languages: Annotated[
        list[str] | None, Option("--languages", "-l", help="Languages to show changes for; by default none.")
    ] = None,
    json: Json = False,
) -> None:
    """Rebuild the table of published and predicted scores, and list what changed for some languages."""
    from xalign_models.atlas.choose import understood
    from xalign_models.atlas.scores import scores_of
    from xalign_models.atlas.table import load_atlas, save
    from xalign_models.atlas.update import changes, current, place, refresh

    if output and os.path.lexists(output):
        try:
            load_atlas(output)
        except ResultsError:
            raise ResultsError(f"--output {output} exists and is not an atlas table; name a new file.") from None
    try:
        before = current()
    except ResultsError:
        tell(f"{place()} is damaged; the packaged table takes its place.")
        before = load_atlas()
    after, problems = refresh(path, before)
    codes = [understood(word, scores_of(after).languages) for word in split_list(languages)]
    target = output or place()
    with atomic_file(target) as temporary:
        save(after, temporary)
    report = {code: list(changes(before, after, code)) for code in codes}
    if json:
        print_json({"source": after.source, "changes": report, "left_out": problems})
        return
    for code, lines in report.items():
        say(f"{code}: {plural(len(lines), 'change')}")
        print_rows(lines)
    say(f"wrote {target}: {len(after.models)} models, {plural(len(problems), 'result')} left out or cut")


def _size(text: str | None) -> int | None:
    """``600M`` -> 600,000,000."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.strip().upper())
    if not match:
        raise ModelError(f"--max-params {text}: write a number with K, M or B, e.g. 600M.")
    return round(float(match[1]) * _UNITS[match[2]])


def _bytes(count: int | None) -> str:
    return "?" if not count else f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _row(candidate: RankedModel, choice: ModelRanking) -> dict[str, Any]:
    from xalign_models.atlas.choose import named
    from xalign_models.languages import display_name

    about = candidate.about
    language, worst = candidate.worst
    whole = candidate.high - candidate.low < 0.001
    return {
        "model": candidate.model,
        "score": f"{100 * candidate.score:.1f}",
        "90%": "measured" if whole else f"{100 * candidate.low:.0f}-{100 * candidate.high:.0f}",
        "worst": f"{100 * worst:.0f} {display_name(language)}",
        "measured": f"{candidate.measured}/{choice.scores}",
        "trained on": candidate.trained if about.trained_on is not None else "?",
        "parameters": f"{about.parameters / 1e6:,.0f}M" if about.parameters else "?",
        "memory": _bytes(candidate.memory),
        "index": _bytes(candidate.index),
        "context": about.max_tokens or "?",
        "weights": {True: "open", False: "API", None: "?"}[about.open_weights],
        "prompts": {True: "yes", False: "no", None: "?"}[about.prompts],
        "licence": about.licence if named(about.licence) else "?",
        "link": about.reference or "?",
    }


def _explain(choice: ModelRanking) -> list[str]:
    from xalign_models.languages import display_name

    near = [candidate for candidate in choice.candidates if candidate.model == choice.cheapest]
    lines = [f"smallest within two points of the first: {one.model}, {100 * one.score:.1f}" for one in near]
    tasks = ", ".join(f"{display_name(language)} {count}" for language, count in choice.coverage.items())
    lines += [f"number of tasks with scores in each language: {tasks}", *choice.notes]
    return lines + [f"measure this next: {line}" for line in choice.next]
