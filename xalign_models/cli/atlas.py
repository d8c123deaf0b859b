"""``xalign import | choose``."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from xalign_models.cli.common import Json, language_codes, print_json, print_rows, say, split_list, tell
from xalign_models.errors import ModelError

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
    from xalign_models.atlas.imported import comparable, read_public
    from xalign_models.atlas.written import write_results

    imported = read_public(path, models=split_list(models), tasks=split_list(tasks))
    rows = comparable(imported.results)
    if output is not None:
        write_results(imported.results, output, str(path))
    if json:
        print_json({"comparable": rows, "left_out": imported.problems})
        return
    print_rows(rows, as_json=False, right=("models", "subsets", "scores"))
    for problem in imported.problems:
        tell(problem)
    count = len({result.model for result in imported.results})
    written = f"; wrote {output}/results" if output is not None else "; --output ROOT writes them"
    say(f"{len(imported.results)} results of {count} models, {len(imported.problems)} left out or cut{written}")


def choose(
    languages: Annotated[list[str] | None, Option("--languages", "-l", help="Language codes, e.g. sw,te,yo.")] = None,
    task: Annotated[
        str | None, Option(help="Kind of task: retrieval, bitext, sts or classification; by default all.")
    ] = None,
    max_params: Annotated[str | None, Option(help="Maximum number of parameters, e.g. 600M or 1.5B.")] = None,
    license_: Annotated[str | None, Option("--license", help="Licence such as mit, or `permissive`.")] = None,
    dim: Annotated[int | None, Option(help="Maximum dimension of the vectors.")] = None,
    results: Annotated[
        Path | None, Option(help="Folder with your own results to rank beside the published ones.")
    ] = None,
    top: Annotated[int, Option(help="Number of models to print; JSON has all.")] = 10,
    json: Json = False,
) -> None:
    """Choose a model for given languages by mteb's published results and your own.

    The score is the expected mean score on these tasks and languages, with its 95% interval. An asterisk marks models
    that are statistically tied with the first.
    """
    from xalign_models.atlas import choose as choosing
    from xalign_models.atlas import load_atlas

    wish = choosing.Wish(language_codes(languages, ()), task, _size(max_params), license_, dim)
    atlas = load_atlas()
    if results is not None:
        from xalign_models.atlas.measured import with_measured

        atlas = with_measured(atlas, results)
    choice = choosing.choose(atlas, wish)
    if json:
        print_json({"wish": asdict(wish), "source": atlas.source, **asdict(choice)})
        return
    rows = [_row(candidate) for candidate in choice.candidates[:top]]
    print_rows(rows, as_json=False, right=("score", "tasks", "parameters", "dimension"))
    for line in _explain(choice):
        tell(f"- {line}")


def _size(text: str | None) -> int | None:
    """``600M`` -> 600,000,000."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.strip().upper())
    if not match:
        raise ModelError(f"--max-params {text}: write a number with K, M or B, e.g. 600M.")
    return round(float(match[1]) * _UNITS[match[2]])


def _row(candidate: RankedModel) -> dict[str, Any]:
    about = candidate.about
    return {
        "tied": "*" if candidate.tied else "",
        "model": candidate.model,
        "score": f"{100 * candidate.score:.1f}",
        "95%": f"{100 * candidate.low:.0f}-{100 * candidate.high:.0f}",
        "tasks": len(candidate.tasks),
        "trained on": len(candidate.trained_on) if about.trained_on is not None else "?",
        "parameters": f"{about.parameters / 1e6:,.0f}M" if about.parameters else "?",
        "dimension": about.dimension or "?",
        "licence": about.licence or "?",
    }


def _explain(choice: ModelRanking) -> list[str]:
    from xalign_models.languages import display_name

    tied = sum(candidate.tied for candidate in choice.candidates)
    lines = [f"{tied} of {len(choice.candidates)} models cannot be told from the first (*)."]
    tasks = ", ".join(f"{display_name(language)} {count}" for language, count in choice.coverage.items())
    lines += [f"tasks of this kind with scores in each language: {tasks}", f"evidence: {', '.join(choice.evidence)}"]
    lines += [
        f"a guess: nothing is published for {display_name(language)} ({language}); {display_name(relative.language)} "
        f"({relative.language}), of the same {relative.shares}, stands in for it."
        for language, relative in choice.guessed.items()
    ]
    lines += [
        f"nothing is published for {display_name(language)} or for a related language." for language in choice.missing
    ]
    return [*lines, *choice.notes]
