"""``xalign analyse``."""

from __future__ import annotations

import contextlib
import datetime
import json as jsonlib
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from xalign_models.analysis import OPTIONS, Findings, Request
from xalign_models.cli.common import err, language_codes, out, print_json, print_rows, say, split_list, tell
from xalign_models.cli.options import Device, Json
from xalign_models.errors import ModelError, ResultsError, plural
from xalign_models.paths import atomic_write_text, unwritable
from xalign_models.plugins import ANALYSES

if TYPE_CHECKING:
    import pandas as pd


MAX_ROWS, HEAD_ROWS, MAX_COLUMNS = 60, 10, 12
"""Limits for tables in a terminal: rows of a table shown whole, first rows of a longer one, and columns, beyond which a
terminal would break every cell. The files have everything."""


def analyse(
    name: Annotated[str | None, Argument(help="Name of the analysis; without it, all are listed.")] = None,
    models: Annotated[
        list[str] | None, Option("--model", "--models", "-m", help="Names, directories or hub ids.")
    ] = None,
    output: Annotated[Path, Option("--output", "-o", help="Directory to write to.")] = Path("analyses"),
    results: Annotated[Path, Option(help="Folder that `xalign run --output` wrote to.")] = Path(),
    rows: Annotated[int | None, Option(min=1, help="Maximum number of rows per text.")] = None,
    languages: Annotated[list[str] | None, Option(help="Language codes; the analysis has defaults.")] = None,
    tasks: Annotated[
        list[str] | None, Option("--task", "--tasks", "-t", help="Names of tasks; the analysis has defaults.")
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Answer a question about models with tables (CSV) and figures (SVG)."""
    if name is None:
        print_rows([{"analysis": listed, **ANALYSES.facts(listed)} for listed in ANALYSES], json)
        return
    ANALYSES.check(name)
    if output.exists() and not output.is_dir():
        raise ResultsError(f"--output {output} is a file; name a directory.")
    if reason := unwritable(output):
        raise ResultsError(f"--output {output} cannot be written ({reason}); choose another directory.")
    tell("loading mteb ...") if err.is_terminal else None
    from xalign_models import figures

    codes = language_codes(languages, None)
    request = Request(tuple(split_list(models)), results, device, rows, codes, tuple(split_list(tasks)))
    request.check(ANALYSES.facts(name).get("options", OPTIONS))
    with figures.styled():
        findings = ANALYSES[name](request)
    tables = {f"{name}-{title}.csv": frame for title, frame in findings.tables.items()}
    for file, frame in tables.items():
        atomic_write_text(output / file, frame.to_csv(index=False, lineterminator="\n"))
    drawn = [figures.save(figure, output, f"{name}-{title}").name for title, figure in findings.figures.items()]
    document = {**report(name, request, findings), "tables": [*tables], "figures": drawn}
    atomic_write_text(output / f"{name}.json", jsonlib.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if json:
        print_json({**document, "tables": {title: _records(frame) for title, frame in findings.tables.items()}})
        return
    for table, frame in findings.tables.items():
        _print_table(table, frame)
    for note in findings.notes:
        say(f"- {note}")
    say(f"wrote {output}/{name}*")


def report(name: str, request: Request, findings: Findings) -> dict[str, Any]:
    """Provenance of the findings: command, models and revisions, text, options, versions and date; no folders."""
    from xalign_models.evaluation.cache import versions, without_folders

    scored = "results" in ANALYSES.facts(name).get("options", ())
    options = {option: getattr(request, option) for option in ("rows", "languages", "device", "tasks")}
    options = without_folders({**options, "results": request.results.name or None})
    given = {"models": without_folders(request.models), **options}
    words = [
        f"--{key}={','.join(value) if isinstance(value, list) else value}" for key, value in given.items() if value
    ]
    return {
        "analysis": name,
        "command": shlex.join(["xalign", "analyse", name, *words]),
        "date": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "models": [_model(model, request.results, scored) for model in request.models or findings.models],
        "data": without_folders(findings.data),
        "options": options,
        "versions": {**versions(), "matplotlib": version("matplotlib")},
        "notes": list(findings.notes),
    }


def _model(name: str, results: Path, scored: bool) -> dict[str, Any]:
    """Name and revision of a model: that of its results, if it is ``scored`` there or is not on this machine."""
    from xalign_models.boards.leaderboard import choose_models
    from xalign_models.models.metadata import model_meta
    from xalign_models.results.reading import read_results

    with contextlib.suppress(ModelError):
        if not scored:
            meta = model_meta(name)
            return {"name": meta.name, "revision": meta.revision}
    revisions = set()
    with contextlib.suppress(ResultsError):
        tables = read_results(results).tables
        (name,) = choose_models(sorted({model for model, _ in tables}), [name])
        revisions = {table.revision for (model, _), table in tables.items() if model == name}
    return {"name": name, "revision": ", ".join(sorted(revisions)) or None}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = jsonlib.loads(frame.to_json(orient="records", double_precision=10))
    return records


def _print_table(title: str, frame: pd.DataFrame) -> None:
    out.print(f"\n{title}", style="bold", highlight=False)
    if frame.shape[1] > MAX_COLUMNS:
        say(f"{plural(len(frame), 'row')} of {frame.shape[1]} columns, in the files")
        return
    shown = frame if len(frame) <= MAX_ROWS else frame.head(HEAD_ROWS)
    rows = [
        {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
        for row in _records(shown)
    ]
    numeric = tuple(column for column, kind in frame.dtypes.items() if kind.kind in "fiu")
    print_rows(rows, right=numeric)
    if len(shown) < len(frame):
        say(f"... {len(frame) - len(shown)} more rows in the files")
