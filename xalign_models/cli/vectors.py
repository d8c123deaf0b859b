"""``xalign apply | parity``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from xalign_models.cli.common import Device, Json, language_codes, out, print_json, print_rows
from xalign_models.cli.models import Kept, TruncateDim
from xalign_models.errors import ModelError


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(apply)
    app.command()(parity)


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
    engine: Annotated[str, typer.Option(help="local, or ray: a cluster's workers write the parts.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a running Ray cluster; by default one is started.")] = None,
    cpus_per_task: Annotated[int, typer.Option(min=1, help="Ray: cores of a part.")] = 1,
    device: Device = None,
) -> None:
    """Align existing vectors, any number of them; the same command resumes an interrupted run."""
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


def parity(
    first: Annotated[str, typer.Argument(help="A name, openai:..., vectors:FILE, a directory or a hub id.")],
    second: Annotated[str, typer.Argument(help="The same model, served in another way.")],
    texts: Annotated[str, typer.Option(help="File of texts, or a corpus.")],
    languages: Annotated[list[str] | None, typer.Option(help="Language codes of the corpus; by default all.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Texts of a language.")] = 20,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest 1 - cosine that is no difference.")] = 1e-8,
    truncate_dim: TruncateDim = None,
    vectors: Kept = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Compare two ways to serve a model and name the likely cause of a difference; exits with 1 if they differ."""
    from xalign_models.corpora.listed import texts_of
    from xalign_models.parity.compare import compare
    from xalign_models.parity.served import Served

    listed = texts_of(texts, language_codes(languages, None, all=None), limit)
    served, other = (Served(model, device, truncate_dim=truncate_dim, vectors=vectors) for model in (first, second))
    result = compare(served, other, listed, tolerance)
    if json:
        print_json(asdict(result))
    else:
        print_rows([asdict(row) for row in result.rows], as_json=False)
        for cause in result.causes:
            out.print(f"{cause.kind}: {cause.text}", highlight=False, markup=False, soft_wrap=True)
        verdict = "the same" if result.same else "different"
        out.print(
            f"{verdict}: least cosine {result.least:.9f}, "
            f"nearest neighbour of {result.neighbours:.1%} of texts changes",
            highlight=False,
            soft_wrap=True,
        )
    raise typer.Exit(0 if result.same else 1)
