"""``xalign verify | reproduce | audit``."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xalign_models.cli.common import language_codes, print_json, print_rows, say, set_data, split_list, tell
from xalign_models.cli.options import Data, Device, Json, Languages, Models, Output, Tasks
from xalign_models.errors import DataError, plural


def verify(
    models: Annotated[list[Path] | None, Argument(help="Directories of saved models to check as well.")] = None,
    output: Output = ".",
    clean: Annotated[
        bool,
        Option(
            "--clean",
            help="Delete damaged vectors and fits, rename damaged results, and remove leftovers of killed runs.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check the store, assets, saved models, fits and results. Exits with 1 if anything is damaged."""
    if not Path(output).is_dir():
        raise DataError(f"{output}: no such folder.")
    from xalign_models.evaluation.verification import verify as check_all

    checks = list(check_all(Path(output), models or (), clean=clean))
    if json:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        for check in checks:
            told = {"damaged": check.problems, "mended": check.mended, "not checked": check.unchecked}
            for label, lines in told.items():
                for line in lines:
                    tell(f"{label}: {line}")
        rows = [
            {"kind": check.kind, "checked": check.checked, "damaged": len(check.problems), "mended": len(check.mended)}
            for check in checks
        ]
        print_rows(rows, right=("checked", "damaged", "mended"))
    raise typer.Exit(1 if any(check.problems for check in checks) else 0)


def reproduce(
    result: Annotated[Path, Argument(help="File to reproduce: results/<model>/<revision>/<task>.json.")],
    tolerance: Annotated[float, Option(min=0, help="Differences up to this size count as equal.")] = 1e-4,
    no_cache: Annotated[
        bool, Option("--no-cache", help="Encode and fit everything again instead of reusing stored vectors.")
    ] = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Run a committed result again and compare the scores. Exits with 1 if one differs."""
    from xalign_models.evaluation.reproduction import reproduce as run_again
    from xalign_models.models.mteb import register_with_mteb
    from xalign_models.store import open_store

    register_with_mteb()
    rerun = run_again(result, device=device, store=None if no_cache else open_store(), tell=tell)
    differing = rerun.differing(tolerance)
    if json:
        print_json({**dataclasses.asdict(rerun), "differing": [dataclasses.asdict(row) for row in differing]})
    else:
        for note in rerun.notes:
            tell(f"note: {note}")
        print_rows([dataclasses.asdict(row) for row in differing])
        largest = max(abs(row.difference) for row in rerun.rows)
        say(
            f"{rerun.model}  {rerun.task}: scores that are the same within {tolerance:g}: "
            f"{len(rerun.rows) - len(differing)} of {len(rerun.rows)}; the largest difference is {largest:.2g}. "
            f"Encoded {plural(rerun.encoded, 'text')}; of {rerun.stored + rerun.compared:,} vectors of the store "
            f"{rerun.compared:,} were compared."
        )
    raise typer.Exit(1 if differing else 0)


def audit(
    tasks: Tasks = None,
    models: Models = None,
    corpus: Annotated[list[str] | None, Option(help="Text that a model was trained on: ntrex, own:DIR, ...")] = None,
    data: Data = None,
    limit: Annotated[int | None, Option(min=1, help="Maximum number of rows of --corpus per language.")] = None,
    languages: Languages = None,
    tolerance: Annotated[
        float, Option(min=0, max=1, help="Share of a language's texts that may overlap without being declared.")
    ] = 0.01,
    json: Json = False,
) -> None:
    """Look for a task's text in the text that models were fitted on. Exits with 1 if an overlap is undeclared."""
    set_data(data)
    from xalign_models.evaluation import audit as auditing
    from xalign_models.evaluation.recording import task_texts
    from xalign_models.models.mteb import register_with_mteb

    register_with_mteb()
    sources = [(name, *auditing.model_text(name)) for name in split_list(models)]
    sources += [(name, *auditing.corpus_text(name, limit)) for name in corpus or ()]
    if not sources or not tasks:
        raise DataError("Name tasks with -t, and models with -m or text with --corpus.")
    rows: list[dict[str, Any]] = []
    for task in split_list(tasks):
        texts = task_texts(task, language_codes(languages, None, all=None))
        for name, text, declared in sources:
            rows += [
                {
                    "fitted": name,
                    **dataclasses.asdict(overlap),
                    "share": overlap.share,
                    "declared": overlap.task in declared,
                }
                for overlap in auditing.overlaps(task, texts, text)
                if overlap.language is None or overlap.language in text
            ]
    shown = rows if json else [{**row, "share": f"{100 * row['share']:.1f}%"} for row in rows if row["share"]]
    print_rows(shown, json, right=("texts", "exact", "near", "share"))
    hidden = [row for row in rows if row["share"] > tolerance and not row["declared"]]
    if not json:
        names = (plural(len(rows), "language"), plural(len(sources), "text"))
        say(
            f"compared {names[0]} with {names[1]} to fit on; {len(shown) or 'none'} of them share rows, "
            f"{len(hidden) or 'none'} more than {100 * tolerance:g}% undeclared"
        )
    raise typer.Exit(1 if hidden else 0)
