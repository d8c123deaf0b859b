"""What commands share: the two consoles, options, rows, JSON, and lists from options."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from xalign_models.errors import DataError, LanguageError, ModelError

Default = TypeVar("Default")
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)


def _model_names(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from xalign_models.models.catalogue import specs

    names = (name.removeprefix("xalign/") for name in specs())
    return [name for name in names if name.startswith(incomplete)]


def _task_names(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from xalign_models.plugins import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps; by default the best there is.")]
Output = Annotated[str, typer.Option("--output", "-o", help="Root of the results; they lie in its folder results/.")]
Models = Annotated[
    list[str] | None, typer.Option("--models", "-m", help="Names, directories or hub ids.", autocompletion=_model_names)
]
Tasks = Annotated[
    list[str] | None, typer.Option("--tasks", "-t", help="Names of tasks, ours or mteb's.", autocompletion=_task_names)
]
Data = Annotated[
    list[str] | None,
    typer.Option(help="NAME=DIR or NAME=test:DIR: your text, for OwnParallel (own=DIR) or OwnParallel-NAME."),
]
Budget = Annotated[
    str | None,
    typer.Option(help="Most to spend at endpoints: tokens, such as 2M, or dollars, such as 5usd; then it stops."),
]
Price = Annotated[float | None, typer.Option("--price-per-million", help="Dollars for a million tokens.")]


def fail(message: str) -> NoReturn:
    """One line on standard error, exit status 2."""
    err.print(f"error: {message}", soft_wrap=True, highlight=False, markup=False)
    sys.exit(2)


def print_json(data: Any) -> None:
    """``data`` as indented JSON on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")


def print_rows(rows: list[dict[str, Any]], as_json: bool, right: tuple[str, ...] = ()) -> None:
    """Rows as a table; as JSON if asked for; as tab-separated values where the output is no terminal.

    Args:
        rows: All with the keys of the first, which are the columns' names.
        as_json: Print JSON.
        right: Columns that a table aligns at the right.
    """
    if as_json:
        print_json(rows)
        return
    lines = (
        [[*rows[0]], *(["" if value is None else str(value) for value in row.values()] for row in rows)] if rows else []
    )
    if not out.is_terminal:
        sys.stdout.writelines("\t".join(" ".join(cell.split()) for cell in line) + "\n" for line in lines)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in lines[0] if lines else ():
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for line in lines[1:]:
        table.add_row(*line)
    out.print(table, highlight=False, markup=False)


def split_list(values: list[str] | None) -> list[str]:
    """Options that may be repeated or hold commas: ``-m a -m b,c`` is a, b, c."""
    return [part.strip() for value in values or () for part in value.split(",") if part.strip()]


def language_codes(values: list[str] | None, default: Default, **words: Default) -> Default | tuple[str, ...]:
    """``--languages`` as canonical codes, each once.

    Args:
        values: What was given.
        default: Where nothing was.
        **words: What ``all`` or ``core`` is for the command, if it is anything; each stands alone.

    Raises:
        LanguageError: No language has such a code, or a word is not alone (as a code, ``all`` would be Allar).
    """
    from xalign_models.languages import canonical

    given = split_list(values)
    if not given:
        return default
    if len(given) == 1 and given[0] in words:
        return words[given[0]]
    if {"all", "core"} & {*given}:
        alone = "".join(f", or `{word}` alone" for word in words)
        raise LanguageError(f"--languages {','.join(given)} is not possible; give codes{alone}.")
    return tuple(dict.fromkeys(canonical(one) for one in given))


def set_data(data: list[str] | None) -> None:
    """``--data`` as ``XALIGN_OWN``, for this process and those that it starts.

    Raises:
        DataError: It is not NAME=DIR, the name cannot be one of own text, or nothing is there.
    """
    from xalign_models.corpora.own_text import VARIABLE, own_paths

    if bare := [part for part in split_list(data) if "=" not in part]:
        raise DataError(f"--data {bare[0]!r} has no name; write --data own=DIR.")
    if data:
        os.environ[VARIABLE] = ",".join(
            f"{name}={part}{':' if part else ''}{path.resolve()}"
            for name, (part, path) in own_paths(",".join(data)).items()
        )


def set_budget(budget: str | None, price: float | None, engine: str = "local") -> None:
    """``--budget`` and ``--price-per-million`` as the environment's variables.

    Raises:
        ModelError: They are no amounts, or the processes are several.
    """
    from xalign_models.backbones.endpoints.settings import BUDGET, PRICE, Settings

    if budget and engine == "ray":
        raise ModelError("--budget counts what one process spends; --engine ray has many.")
    for variable, value in ((BUDGET, budget), (PRICE, price)):
        if value is not None:
            os.environ[variable] = str(value)
    Settings.from_environment()
