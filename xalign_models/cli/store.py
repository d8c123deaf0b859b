"""``xalign store``: the stored vectors, so that nothing is encoded twice."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.common import Device, Json, language_codes, out, print_rows
from xalign_models.cli.options import VectorOptions, with_options

group = typer.Typer(help="The vectors that are kept so that nothing is encoded twice.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="store")


@group.command()
def stats(json: Json = False) -> None:
    """Vectors and bytes per encoder, most recently used first."""
    from xalign_models.store import open_store

    store = open_store()
    rows = [
        {
            "encoder": usage.namespace[:16],
            "vectors": usage.vectors,
            "MB": round(usage.bytes / 1e6, 1),
            "last used": datetime.datetime.fromtimestamp(usage.last_used).isoformat(" ", "minutes"),
        }
        for usage in store.stats()
    ]
    if not json:
        out.print(f"{store.path}, at most {store.max_bytes / 2**30:.1f} GiB", highlight=False, soft_wrap=True)
    print_rows(rows, json, right=("vectors", "MB"))


@group.command()
def clear(
    encoder: Annotated[str | None, typer.Argument(help="Start of an encoder's fingerprint; all by default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drop stored vectors; they are encoded again when needed."""
    from xalign_models.store import open_store

    store = open_store()
    chosen = [usage for usage in store.stats() if usage.namespace.startswith(encoder or "")]
    total = sum(usage.vectors for usage in chosen)
    if total and not yes:
        typer.confirm(f"Drop {total} vectors of {len(chosen)} encoders?", abort=True)
    dropped = sum(store.clear(usage.namespace) for usage in chosen)
    out.print(f"dropped {dropped} vectors", highlight=False)


Prompt = Annotated[str | None, typer.Option(help="That the texts are encoded with; by default the model's own.")]
Model = Annotated[str, typer.Option(help="Whose backbone's vectors: a name, a directory or a hub id.")]


@group.command("export")
@with_options
def export_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file to write.")],
    texts: Annotated[
        str | None,
        typer.Option(help="File of texts or corpus; by default all vectors are written, each with a hash of its text."),
    ] = None,
    languages: Annotated[list[str] | None, typer.Option(help="Language codes of the corpus; by default all.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Texts of a language.")] = None,
    prompt: Prompt = None,
    *,
    vectors: VectorOptions,
    device: Device = None,
) -> None:
    """Write raw vectors as parquet; texts missing in the store are encoded."""
    from xalign_models.corpora.listed import texts_of
    from xalign_models.store import open_store
    from xalign_models.vectors.transfer import export

    listed = texts_of(texts, language_codes(languages, None, all=None), limit) if texts else None
    count = export(model, output, open_store(), listed, prompt=prompt, device=device, **asdict(vectors))
    out.print(f"{count} vectors: {output}", highlight=False, soft_wrap=True)


@group.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Parquet, npz or safetensors with texts, or with exported ids.")],
    model: Model,
    prompt: Prompt = None,
    check: Annotated[int, typer.Option(min=0, help="Texts that the model encodes itself first, for comparison.")] = 8,
    device: Device = None,
) -> None:
    """Store the vectors of a file as those of a model, so that its texts need no encoding."""
    from xalign_models.store import open_store
    from xalign_models.vectors.transfer import import_file

    imported = import_file(file, model, open_store(), prompt=prompt, check=check, device=device)
    out.print(f"{imported.vectors} vectors kept, {imported.checked} of them checked", highlight=False)
