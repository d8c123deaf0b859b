"""Shared code of the commands: consoles, lines, rows, JSON, and lists from options."""

import gc
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console

from xalign_models.errors import DataError, LanguageError, ModelError
from xalign_models.paths import CARD, require_replaceable, unwritable
from xalign_models.specs import AlignmentSpec
from xalign_models.tables.escaping import escape
from xalign_models.tables.listing import listing

Default = TypeVar("Default")
out = Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)


def check_output(output: Path) -> None:
    """Refuse to replace anything but a saved model, and a directory that cannot be written, before hours of work.

    Raises:
        ModelError: ``--output`` is a file, a directory with other content, or in a directory that cannot be written.
    """
    require_replaceable(output, CARD, "--output")
    if reason := unwritable(output):
        raise ModelError(f"--output {output} cannot be written ({reason}); choose another directory.")


def check_inputs(
    *models: str | None,
    method: str = "auto",
    params: Mapping[str, Any] | None = None,
    corpora: Sequence[str] | None = None,
    languages: tuple[str, ...] | None = None,
) -> None:
    """Refuse unknown models, an unknown method and malformed text before the slow imports; models are read later.

    Raises:
        XAlignError: A model or the method is unknown, a parameter is invalid, or text is missing or malformed.
    """
    from xalign_models.alignments import make
    from xalign_models.models import fitting, names

    for model in models:
        if model and not Path(model).is_dir():
            names.find_spec(model)
    if method != "auto":
        make(method, **(params or {}))
    if corpora:
        spec = AlignmentSpec("text", "centered", tuple((params or {}).items()), tuple(corpora), None, languages)
        paired = all(corpus.kind != "monolingual" for corpus in fitting.load_corpora(spec))
        method = method if method != "auto" else "procrustes" if paired else "centered"
        for _ in fitting.fit_texts(replace(spec, method=method)):  # reads and checks a language
            pass


def expect_many_objects() -> None:
    """Let the garbage collector run less often: results are millions of small objects, none of them in cycles."""
    gc.set_threshold(50_000, 20, 100)


def say(text: str) -> None:
    """Print text on standard output, unwrapped, without markup or control characters but line breaks."""
    out.print("\n".join(map(escape, text.split("\n"))), highlight=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print text on standard error as :func:`say` does on standard output."""
    err.print("\n".join(map(escape, text.split("\n"))), highlight=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """Print one line on standard error and exit with status 2."""
    tell(f"error: {message}")
    sys.exit(2)


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON on standard output."""
    sys.stdout.write(escape(json.dumps(data, indent=2, ensure_ascii=False, default=str), "json") + "\n")


def print_rows(rows: list[dict[str, Any]], as_json: bool = False, right: tuple[str, ...] = ()) -> None:
    """Print rows as a table in a terminal, as tab-separated values elsewhere, or as JSON if requested.

    The rows have equal keys, which name the columns; the table aligns the columns in ``right`` to the right.
    """
    if as_json:
        print_json(rows)
        return
    lines = [[*row] for row in rows[:1]]
    lines += [[*map(_cell, row.values())] for row in rows]
    if not out.is_terminal:
        sys.stdout.writelines("\t".join(escape(cell, "csv") for cell in line) + "\n" for line in lines)
        return
    if not rows:
        return
    tables, addresses = listing(lines[0], [[*map(escape, line)] for line in lines[1:]], right, out.width)
    for place, table in enumerate(tables):
        out.print(*([""] * bool(place)), table, sep="\n", highlight=False)
    for address in addresses:
        say(address)


def _cell(value: object) -> str:
    """Text on one line: names with commas between them, nothing for None."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    return " ".join(text.split())


def split_list(values: list[str] | None) -> list[str]:
    """Values of an option that may be repeated or contain commas, each once: ``-m a -m b,c`` is a, b, c.

    A value with commas that is the path of a file or directory, also after ``NAME=``, stays whole.
    """
    parts = [[value] if _is_path(value) else value.split(",") for value in values or ()]
    return [*dict.fromkeys(part.strip() for each in parts for part in each if part.strip())]


def given(context: typer.Context, names: Collection[str] | None = None) -> list[str]:
    """The options that a command line gives, among some of the command's parameters; None for all."""
    options = {str(own.name): own.opts[0] for own in context.command.params if names is None or own.name in names}
    sources = {option: context.get_parameter_source(name) for name, option in options.items()}
    return [option for option, source in sources.items() if source and source.name == "COMMANDLINE"]


def _is_path(value: str) -> bool:
    return "," in value and any(os.path.lexists(path) for path in (value, value.partition("=")[2]) if path)


def language_codes(values: list[str] | None, default: Default, **words: Default) -> Default | tuple[str, ...]:
    """``--languages`` as canonical codes, each once.

    Args:
        values: Values of the option.
        default: Result when the option was not given.
        **words: Results of the words ``all`` and ``core``, if the command has them; a word cannot be combined.

    Raises:
        LanguageError: A code is unknown, or a word is not alone (as a code, ``all`` would be Allar).
    """
    from xalign_models.languages import canonical

    codes = split_list(values)
    if not codes:
        return default
    if len(codes) == 1 and codes[0] in words:
        return words[codes[0]]
    if {"all", "core"} & {*codes}:
        alternatives = "".join(f", or `{word}` alone" for word in words)
        raise LanguageError(f"--languages {','.join(codes)} is not possible; give codes{alternatives}.")
    return tuple(dict.fromkeys(canonical(code) for code in codes))


def set_data(data: list[str] | None) -> None:
    """Set ``XALIGN_OWN`` from ``--data``, for this process and its children.

    Raises:
        DataError: The value is not NAME=DIR, the name is not allowed, or the path does not exist.
    """
    from xalign_models.corpora.own_text import VARIABLE, own_paths

    if bare := [part for part in split_list(data) if "=" not in part]:
        raise DataError(f"--data {bare[0]!r} has no name; write --data own=DIR.")
    if data:
        os.environ[VARIABLE] = ",".join(
            f"{name}={part}{':' if part else ''}{path.resolve()}"
            for name, (part, path) in own_paths(",".join(data)).items()
        )
