"""``xalign apply | parity``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from xalign_models.cli.common import Device, Json, language_codes, out, print_json, print_rows
from xalign_models.cli.options import EngineOptions, VectorOptions, with_options
from xalign_models.errors import ModelError


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(with_options(apply))
    app.command()(with_options(parity))


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
    *,
    where: EngineOptions,
    device: Device = None,
) -> None:
    """Align existing vectors, any number of them; the same command resumes an interrupted run."""
    from xalign_models.languages import canonical
    from xalign_models.models.maps import load_maps
    from xalign_models.vectors.applying import apply as apply_maps

    if unknown not in {None, "error", "unaligned"}:
        raise ModelError(f"--unknown {unknown}: error or unaligned.")
    run = None
    if cluster := where.cluster(gpus=0):
        from xalign_models.cluster.applying import write_parts

        run = partial(write_parts, cluster)
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
    *,
    vectors: VectorOptions,
    device: Device = None,
    json: Json = False,
) -> None:
    """Compare two ways to serve a model and name the likely cause of a difference; exits with 1 if they differ."""
    from xalign_models.corpora.listed import texts_of
    from xalign_models.parity.compare import compare
    from xalign_models.parity.served import Served

    listed = texts_of(texts, language_codes(languages, None, all=None), limit)
    served, other = (Served(model, device, **asdict(vectors)) for model in (first, second))
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
