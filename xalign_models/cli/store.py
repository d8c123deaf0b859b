"""``xalign store``: the stored vectors, which spare encoding a text twice."""

import datetime
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from xalign_models.cli.common import language_codes, print_rows, say
from xalign_models.cli.options import Device, Json, Languages, Limit, VectorOptions, refuse_idle, with_options
from xalign_models.errors import ModelError, plural

group = typer.Typer(help="Manage the stored vectors, so that no text is encoded twice.", no_args_is_help=True)


@group.command()
def stats(json: Json = False) -> None:
    """Show vectors and bytes per encoder, most recently used first."""
    from xalign_models.store import open_store

    store = open_store()
    rows = [
        {
            "encoder": usage.namespace[:16],
            "model": usage.model,
            "vectors": usage.vectors,
            "MB": round(usage.bytes / 1e6, 1),
            "last used": datetime.datetime.fromtimestamp(usage.last_used).isoformat(" ", "minutes"),
        }
        for usage in store.stats()
    ]
    if not json:
        say(f"{store.path}, at most {store.max_bytes / 2**30:.1f} GiB")
    print_rows(rows, json, right=("vectors", "MB"))


@group.command()
def clear(
    encoder: Annotated[str | None, Argument(help="First characters of a fingerprint; by default all.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Delete stored vectors; they are encoded again when needed."""
    from xalign_models.store import open_store

    store = open_store()
    chosen = [usage for usage in store.stats() if usage.namespace.startswith(encoder or "")]
    total = sum(usage.vectors for usage in chosen)
    if total and not yes:
        if not sys.stdin.isatty():
            raise ModelError("Nothing was deleted; add --yes to confirm.")
        typer.confirm(f"Drop {plural(total, 'vector')} of {plural(len(chosen), 'encoder')}?", abort=True)
    dropped = sum(store.clear(usage.namespace) for usage in chosen)
    say(f"dropped {plural(dropped, 'vector')}")


Prompt = Annotated[str | None, Option(help="Prompt of the texts; by default the model's own.")]
Model = Annotated[str, Option(help="Name, directory or hub id of a model with this backbone.")]


@group.command("export")
@with_options
def export_(
    context: typer.Context,
    model: Model,
    output: Annotated[Path, Option("--output", "-o", help="Parquet file to write.")],
    texts: Annotated[
        str | None,
        Option(help="File of texts, or corpus; by default all stored vectors, with hashes instead of texts."),
    ] = None,
    languages: Languages = None,
    limit: Limit = None,
    prompt: Prompt = None,
    *,
    vectors: VectorOptions,
    device: Device = None,
) -> None:
    """Write raw vectors as parquet; texts without a vector are encoded."""
    if not texts:
        refuse_idle(context, {"languages", "limit", "prompt", "device"}, "--texts")
    from xalign_models.corpora.registry import texts_of
    from xalign_models.store import open_store
    from xalign_models.vectors.transfer import export

    listed = texts_of(texts, language_codes(languages, None, all=None), limit) if texts else None
    count = export(model, output, open_store(), listed, prompt=prompt, device=device, **asdict(vectors))
    say(f"{plural(count, 'vector')}: {output}")


@group.command("import")
def import_(
    file: Annotated[Path, Argument(help="Parquet, npz or safetensors file with texts or exported ids.")],
    model: Model,
    prompt: Prompt = None,
    check: Annotated[int, Option(min=0, help="Number of texts to encode for comparison with the file's vectors.")] = 8,
    device: Device = None,
) -> None:
    """Store the vectors of a file as those of a model, to spare encoding."""
    from xalign_models.store import open_store
    from xalign_models.vectors.transfer import import_file

    count, checked = import_file(file, model, open_store(), prompt=prompt, check=check, device=device)
    say(f"{plural(count, 'vector')} kept, {checked} of them checked")
