"""``xalign import | choose``."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xalign_models.cli.common import Json, err, language_codes, out, print_json, print_rows, split_list
from xalign_models.errors import ModelError

if TYPE_CHECKING:
    from xalign_models.atlas.choose import ModelRanking, RankedModel

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Read results of others into our layout.", no_args_is_help=True)
    group.command("mteb-results")(import_mteb_results)
    app.add_typer(group, name="import")
    app.command()(choose)


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
        err.print(problem, highlight=False, markup=False, soft_wrap=True)
    count = len({result.model for result in imported.results})
    written = f"; wrote {output}/results" if output is not None else "; --output ROOT writes them"
    out.print(
        f"{len(imported.results)} results of {count} models, {len(imported.problems)} left out or cut{written}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def choose(
    languages: Annotated[list[str] | None, typer.Option("--languages", "-l", help="Language codes: sw,te,yo.")] = None,
    task: Annotated[str | None, typer.Option(help="retrieval, bitext, sts or classification; by default all.")] = None,
    max_params: Annotated[str | None, typer.Option(help="Most parameters: 600M, 1.5B.")] = None,
    license_: Annotated[str | None, typer.Option("--license", help="permissive, or a licence such as mit.")] = None,
    dim: Annotated[int | None, typer.Option(help="Longest vectors.")] = None,
    results: Annotated[Path | None, typer.Option(help="Root of results of yours to put beside the published.")] = None,
    top: Annotated[int, typer.Option(help="How many models to print; JSON has all.")] = 10,
    json: Json = False,
) -> None:
    """Choose a model for languages, by the published results of mteb and your own.

    The score is what a model is expected to have on average on these tasks and languages, with its 95% interval; an
    asterisk marks the models that cannot be told from the first.
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
    print_rows([_row(candidate) for candidate in choice.candidates[:top]], as_json=False, right=_NUMBERS)
    for line in _explain(choice):
        err.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)


_NUMBERS = ("score", "tasks", "parameters", "dimension")


def _size(text: str | None) -> int | None:
    """``600M`` -> 600,000,000."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.strip().upper())
    if not match:
        raise ModelError(f"--max-params {text}: a number with K, M or B is needed, e.g. 600M.")
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
    lines += [f"tasks of this kind that have a language: {tasks}", f"evidence: {', '.join(choice.evidence)}"]
    lines += [
        f"a guess: nothing is published for {display_name(language)} ({language}); {display_name(relative.language)} "
        f"({relative.language}), of the same {relative.shares}, stands in for it."
        for language, relative in choice.guessed.items()
    ]
    lines += [f"nothing is published for {display_name(language)} or a relative of it." for language in choice.missing]
    return [*lines, *choice.notes]
