"""``xalign store``: the vectors that are kept so that nothing is encoded twice."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from xalign_models.cli.common import Json, out, print_rows

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
            "encoder": one.namespace[:16],
            "vectors": one.vectors,
            "MB": round(one.bytes / 1e6, 1),
            "last used": datetime.datetime.fromtimestamp(one.last_used).isoformat(" ", "minutes"),
        }
        for one in store.stats()
    ]
    if not json:
        out.print(f"{store.path}, at most {store.max_bytes / 2**30:.1f} GiB", highlight=False, soft_wrap=True)
    print_rows(rows, json, right=("vectors", "MB"))


@group.command()
def clear(
    encoder: Annotated[str | None, typer.Argument(help="Start of an encoder's fingerprint; all by default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drop kept vectors; they are encoded again when they are needed."""
    from xalign_models.store import open_store

    store = open_store()
    chosen = [one for one in store.stats() if one.namespace.startswith(encoder or "")]
    total = sum(one.vectors for one in chosen)
    if total and not yes:
        typer.confirm(f"Drop {total} vectors of {len(chosen)} encoders?", abort=True)
    dropped = sum(store.clear(one.namespace) for one in chosen)
    out.print(f"dropped {dropped} vectors", highlight=False)
