"""``xalign index``: audits an index of vectors, and writes aligned or migrated vectors beside the old ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xalign_models.cli.common import check_inputs, print_json, print_rows, say
from xalign_models.cli.options import Device, EngineOptions, Json, refuse_idle, with_options
from xalign_models.errors import plural
from xalign_models.paths import atomic_write_text

group = typer.Typer(help="Audit an index of vectors, align it, or move it to a new model.", no_args_is_help=True)
Folder = Annotated[Path, Option("--output", "-o", help="New folder for the maps; give the same one to resume.")]


@dataclass(frozen=True)
class IndexOptions:
    """An index, its columns, and the language of its rows."""

    source: Annotated[
        str,
        Argument(help="FILE.parquet, FILE.npz, FILE.faiss, lancedb:DIR#TABLE, qdrant:PLACE#COLLECTION or "
                 "postgresql://USER@HOST/DB#TABLE."),
    ]  # fmt: skip
    column: Annotated[
        str | None, Option(help="Column of vectors; by default the only one, or one with a usual name.")
    ] = None
    text_column: Annotated[str | None, Option(help="Column of texts.")] = None
    lang_column: Annotated[str | None, Option(help="Column of languages, in any code.")] = None
    id_column: Annotated[str | None, Option(help="Column of unique ids.")] = None
    texts: Annotated[Path | None, Option(help="Parquet file of a FAISS index's texts and languages.")] = None
    lang: Annotated[str | None, Option(help="Language of rows without one; by default detected.")] = None

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The index, which is closed at the end."""
        from xalign_models.index.base import Columns, open_index

        columns = Columns(self.column, self.text_column, self.lang_column, self.id_column, self.texts)
        index = open_index(self.source, columns)
        try:
            yield index
        finally:
            index.close()


@dataclass(frozen=True)
class TextOptions:
    """Text to fit methods on, and queries to compare them by."""

    corpus: Annotated[str, Option(help="Parallel text in the index's languages: gettext, ntrex, own:DIR.")] = "gettext"
    limit: Annotated[int, Option(min=50, help="Maximum number of rows of --corpus to fit on.")] = 300
    queries: Annotated[
        Path | None, Option(help="Your queries: JSON lines of text, lang and the id of a relevant row.")
    ] = None


@group.command()
@with_options
def audit(
    context: typer.Context,
    *,
    source: IndexOptions,
    model: Annotated[str | None, Option(help="Model of the index; without one, no method is compared.")] = None,
    text: TextOptions,
    html: Annotated[Path | None, Option("--html", help="Also write the tables to this page.")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show what an index holds, how its languages mix, and the recall to expect of each method."""
    if not model:
        refuse_idle(context, {"corpus", "limit", "queries", "device"}, "--model")
    with source.open() as index:
        from xalign_models.index import auditing

        check_inputs(model)
        if model:
            from xalign_models.index import working  # imports torch; the contents alone need not wait for that

            recipe = working.open_model(model, device)
        sample = auditing.gather(index, source.lang)
        tables = auditing.contents(sample)
        if model:
            tables |= working.audit(sample, recipe, **asdict(text))
    if html:
        atomic_write_text(html, auditing.page(index.source, tables))
    if json:
        print_json(tables)
        return
    for title, rows in tables.items():
        say(f"\n{title}{'' if rows else ': none'}")
        print_rows(rows)


@group.command()
@with_options
def fix(
    *,
    source: IndexOptions,
    output: Folder,
    model: Annotated[str, Option(help="Model of the index, without an alignment.")],
    method: Annotated[str, Option(help="Alignment, or auto for the best recall to expect.")] = "auto",
    text: TextOptions,
    device: Device = None,
    where: EngineOptions,
) -> None:
    """Write aligned vectors beside the old ones, and the model for queries. The same command resumes."""
    with source.open() as index:
        check_inputs(model, method=method, corpora=[] if output.exists() else [text.corpus])
        from xalign_models.index import working

        options = {"lang": source.lang, "device": device, **where.mapping(), **asdict(text)}
        chosen, rows, skipped = working.fix(index, output, model, method, **options)
        written = f"{plural(rows, 'row')} in {index.second}, {skipped} of them without a vector"
        say(f"{chosen}: {written}; queries use {output}")


@group.command()
@with_options
def migrate(
    *,
    source: IndexOptions,
    output: Folder,
    old: Annotated[str, Option("--from", help="Model of the index.")],
    new: Annotated[str, Option("--to", help="New model of the queries.")],
    method: Annotated[str, Option(help="Map between the models: affine, procrustes, lowrank or residual.")] = "affine",
    device: Device = None,
    where: EngineOptions,
) -> None:
    """Write a new model's vectors, predicted from the old ones. The same command resumes."""
    options: dict[str, Any] = {"old": old, "new": new, "method": method, "lang": source.lang, "device": device}
    with source.open() as index:
        check_inputs(old, new, method=method)
        from xalign_models.index import working

        record, rows, skipped = working.migrate(index, output, **options, **where.mapping())
        say(f"{plural(rows, 'row')} in {index.second}, {skipped} of them without a vector")
    print_rows(record["table"])
    measured = record.get("rows", 1000)  # records of older versions lack it
    say(f"The losses are those of an index of {measured} rows; a larger one may lose more.")
    say(f"Encode {record['share']:.0%} of the rows first; {output / working.FIRST} lists them.")


@group.command()
@with_options
def undo(*, source: IndexOptions) -> None:
    """Remove the second column or file, and nothing else."""
    with source.open() as index:
        there = index.written() is not None
        index.drop()
        say(f"removed {index.second}" if there else f"There is no {index.second}, so nothing changed.")
