"""``xalign apply``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from xalign_models.cli.common import Device, out
from xalign_models.errors import ModelError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(apply)


def apply(
    model: Annotated[str, typer.Argument(help="A saved aligned model, a saved alignment, or a registered name.")],
    source: Annotated[Path, typer.Option("--in", help="Parquet file, or directory of them, with vectors.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of parquet parts to write.")],
    column: Annotated[str | None, typer.Option(help="The vectors; by default the only list of numbers.")] = None,
    lang_column: Annotated[str | None, typer.Option(help="The language of each row, in any code.")] = None,
    lang: Annotated[str | None, typer.Option(help="Language of rows that come without one.")] = None,
    unknown: Annotated[
        str | None,
        typer.Option(help="Rows in languages that were not fitted: error or unaligned; by default the model's."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray: parts are written by the workers of a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; by default one is started here.")
    ] = None,
    cpus_per_task: Annotated[int, typer.Option(min=1, help="Ray: cores of a part.")] = 1,
    device: Device = None,
) -> None:
    """Align vectors that exist already, of any number; the same command resumes a run that was stopped."""
    from xalign_models.languages import canonical
    from xalign_models.models.maps import load_maps
    from xalign_models.vectors.applying import apply as apply_maps

    if engine not in {"local", "ray"}:
        raise ModelError(f"--engine {engine}: local or ray.")
    if unknown not in {None, "error", "unaligned"}:
        raise ModelError(f"--unknown {unknown}: error or unaligned.")
    run = None
    if engine == "ray":
        from xalign_models.cluster.applying import write_parts
        from xalign_models.cluster.cluster import Cluster

        run = partial(write_parts, Cluster(address, cpus_per_task, 0))
    code = canonical(lang) if lang else None
    maps = load_maps(model, default_lang=code, unknown=cast(Any, unknown), device=device)
    rows = apply_maps(maps, source, output, column=column, lang_column=lang_column, run=run)
    out.print(f"{rows} rows: {output}", highlight=False, soft_wrap=True)
