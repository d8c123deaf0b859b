"""The application, what all commands share, and how errors end."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from xalign_models import __version__
from xalign_models.errors import LanguageError, XAlignError

Default = TypeVar("Default")
app = typer.Typer(
    help="Fit, score and compare cross-lingually aligned text embeddings.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)
_INTERRUPTED = 130  # typer's exit status for a keyboard interrupt

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps; by default the best there is.")]
Output = Annotated[str, typer.Option("--output", "-o", help="Root of the results; they lie in its folder results/.")]


def _version(asked: bool) -> None:
    if asked:
        out.print(f"xalign {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug messages.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s: %(message)s")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # one line, without a source line
    if not debug:  # others' information on every call; ours says what a user must know
        for name in ("mteb", "datasets", "transformers", "sentence_transformers", "httpx", "huggingface_hub"):
            logging.getLogger(name).setLevel(logging.ERROR)


def main() -> None:
    """Run a command. Exit status: 0 done; 1 done, but something failed or regressed; 2 it could not be done."""
    try:
        from xalign_models.cli import analysis, assets, atlas, gate, leaderboard, lira, models, scoring, store, training

        for module in (
            ()
            if app.registered_commands
            else (models, assets, scoring, leaderboard, gate, store, training, lira, analysis, atlas)
        ):
            module.add_to(app)
        status = app(prog_name="xalign", standalone_mode=False)
    except typer.Abort:
        fail("aborted.")
    except BrokenPipeError:  # `xalign ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except SystemExit as left:  # click's way out if more is written than the pipe holds; our own exits are below
        sys.exit(0 if left.code == 1 else left.code)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: click's way to print its help
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        if "--debug" in sys.argv:
            raise
        if isinstance(error, XAlignError | OSError):  # OSError: a full disk, a folder that cannot be written
            fail(" ".join(str(error).split()))
        if hasattr(error, "format_message"):  # a usage error, of typer's own copy of click
            context = getattr(error, "ctx", None)  # of the last command that there is; click's parser gives none
            command = context.command_path if context else "xalign"
            fail(f"{error.format_message().rstrip('.')}. `{command} --help` shows what there is.")
        raise
    if status == _INTERRUPTED:
        err.print("interrupted; what was finished is kept, and the same command goes on from there.")
    sys.exit(status or 0)


def fail(message: str) -> None:
    """One line on standard error, exit status 2."""
    err.print(f"error: {message}", soft_wrap=True, highlight=False, markup=False)
    sys.exit(2)


def print_json(data: Any) -> None:
    """``data`` as indented JSON on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")


def print_rows(rows: list[dict[str, Any]], as_json: bool, right: tuple[str, ...] = ()) -> None:
    """Rows as a table, or as JSON; columns named in ``right`` are right-aligned."""
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    out.print(table, highlight=False)


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
