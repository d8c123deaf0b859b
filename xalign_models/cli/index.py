"""``xalign index``: audits an index of vectors, and writes aligned or migrated vectors beside the old ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from xalign_models.cli.common import Device, Json, print_json, print_rows, say, split_list
from xalign_models.cli.options import with_options

if TYPE_CHECKING:
    from xalign_models.index.base import Index

group = typer.Typer(
    help="Audit an index of vectors, align it in place, or move it to a new model.", no_args_is_help=True
)
Source = Annotated[
    str,
    Argument(
        help="FILE.parquet, FILE.npz, FILE.faiss, lancedb:DIR#TABLE, qdrant:PLACE#COLLECTION or "
        "postgresql://USER@HOST/DB#TABLE."
    ),
]
Folder = Annotated[Path, Option("--output", "-o", help="New folder for the maps; the same one resumes.")]


@dataclass(frozen=True)
class IndexOptions:
    """Columns of an index, and the language of its rows."""

    column: Annotated[str | None, Option(help="Column of vectors; by default the only or the usual one.")] = None
    text_column: Annotated[str | None, Option(help="Column of texts.")] = None
    lang_column: Annotated[str | None, Option(help="Column of languages, in any code.")] = None
    id_column: Annotated[str | None, Option(help="Column of unique ids.")] = None
    texts: Annotated[Path | None, Option(help="Parquet file of texts and languages of a FAISS index.")] = None
    lang: Annotated[str | None, Option(help="Language of rows without one; by default found in their texts.")] = None

    @contextmanager
    def open(self, source: str) -> Iterator[Index]:
        """The index, which is closed at the end."""
        from xalign_models.index.base import Columns, open_index

        columns = Columns(self.column, self.text_column, self.lang_column, self.id_column, self.texts)
        index = open_index(source, columns)
        try:
            yield index
        finally:
            index.close()


@dataclass(frozen=True)
class TextOptions:
    """Text to fit methods on, and to compare them by."""

    corpus: Annotated[str, Option(help="Parallel text in the index's languages: gettext, ntrex, own:DIR.")] = "gettext"
    limit: Annotated[int, Option(min=50, help="Maximum number of rows of it to fit on.")] = 300
    queries: Annotated[
        Path | None, Option(help="Your queries: JSON lines of text, lang and the id of a relevant row.")
    ] = None
    methods: Annotated[list[str] | None, Option(help="Methods to compare; by default all.")] = None


@group.command()
@with_options
def audit(
    source: Source,
    *,
    columns: IndexOptions,
    model: Annotated[str | None, Option(help="Model of the index; without one, no method is compared.")] = None,
    text: TextOptions,
    html: Annotated[Path | None, Option("--html", help="Also write the tables to this page.")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show what an index holds, how its languages mix, and the recall to expect of each method."""
    from xalign_models.index.report import page
    from xalign_models.index.working import Setting, audit
    from xalign_models.paths import atomic_write_text

    setting = Setting(model, text.corpus, text.limit, text.queries, split_list(text.methods), device) if model else None
    with columns.open(source) as index:
        tables = audit(index, columns.lang, setting)
    if html:
        atomic_write_text(html, page(source, tables))
    if json:
        print_json(tables)
        return
    for title, rows in tables.items():
        say(f"\n{title}{'' if rows else ': none'}")
        print_rows(rows, as_json=False)


@group.command()
@with_options
def fix(
    source: Source,
    output: Folder,
    *,
    columns: IndexOptions,
    model: Annotated[str, Option(help="Model of the index, without an alignment.")],
    method: Annotated[str, Option(help="Alignment, or auto for the one with the best recall to expect.")] = "auto",
    text: TextOptions,
    device: Device = None,
) -> None:
    """Write aligned vectors beside the old ones, and the model for queries; the same command resumes."""
    from xalign_models.index.working import Setting, fix

    setting = Setting(model, text.corpus, text.limit, text.queries, split_list(text.methods), device)
    with columns.open(source) as index:
        chosen, rows, skipped = fix(index, output, setting, method, columns.lang)
        say(f"{chosen}: {rows} rows in {index.second}, {skipped} of them without a vector; queries use {output}")


@group.command()
@with_options
def migrate(
    source: Source,
    output: Folder,
    *,
    columns: IndexOptions,
    old: Annotated[str, Option("--from", help="Model of the index.")],
    new: Annotated[str, Option("--to", help="New model of the queries.")],
    method: Annotated[str, Option(help="Map between the models: affine, procrustes, lowrank or residual.")] = "affine",
    level: Annotated[float, Option(min=0.01, max=0.5, help="Share of queries that may exceed the bound.")] = 0.1,
    wanted: Annotated[float, Option(min=0, max=1, help="Loss that encoding some rows first should bound.")] = 0.3,
    device: Device = None,
) -> None:
    """Write a new model's vectors, predicted from the old ones; the same command resumes."""
    from xalign_models.index.working import migrate

    options = {"old": old, "new": new, "method": method, "level": level, "wanted": wanted, "device": device}
    with columns.open(source) as index:
        record, rows, skipped = migrate(index, output, lang=columns.lang, **options)  # type: ignore[arg-type]
        say(f"{rows} rows in {index.second}, {skipped} of them without a vector")
    print_rows(record["table"], as_json=False)
    say(f"Encode {record['share']:.0%} of the rows first, by {output}/encode-first.txt.")


@group.command()
@with_options
def undo(source: Source, *, columns: IndexOptions) -> None:
    """Remove the second column, and nothing else."""
    with columns.open(source) as index:
        index.drop()
        say(f"{index.second} is gone")
