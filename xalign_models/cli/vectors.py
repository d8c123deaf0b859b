"""``xalign apply | export | parity``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xalign_models.cli.common import language_codes, print_json, print_rows, say
from xalign_models.cli.options import Device, EngineOptions, Json, Languages, Limit, VectorOptions, with_options
from xalign_models.errors import ModelError, plural
from xalign_models.paths import expanded, require_replaceable
from xalign_models.specs import Unknown

Policy = Annotated[Unknown | None, Option(help="Policy for languages not fitted; by default the model's own.")]
PER_LANGUAGE = 20
"""Texts of a language of a corpus that `xalign parity` compares by default; of a file, it compares all."""


@with_options
def apply(
    model: Annotated[str, Argument(help="Saved aligned model, saved alignment, or registered name.")],
    source: Annotated[Path, Option("--in", help="Parquet file with vectors, or directory of such files.")],
    output: Annotated[Path, Option("--output", "-o", help="Directory of parquet parts to write.")],
    column: Annotated[
        str | None, Option(help="Column of vectors; by default the only one that holds lists of numbers.")
    ] = None,
    lang_column: Annotated[
        str | None, Option(help="Column of the rows' languages, in any code; by default `lang`.")
    ] = None,
    lang: Annotated[str | None, Option(help="Language of rows that have none.")] = None,
    prompt: Annotated[str | None, Option(help="Name of the vectors' prompt; by default the model's own.")] = None,
    prompt_column: Annotated[str | None, Option(help="Column of the rows' prompts, such as query.")] = None,
    unknown: Policy = None,
    *,
    where: EngineOptions,
    device: Device = None,
) -> None:
    """Align existing vectors, in files of any size.

    The same command resumes an interrupted run.
    """
    from xalign_models.languages import canonical
    from xalign_models.models.maps import load_maps
    from xalign_models.vectors.applying import apply as apply_maps

    maps = load_maps(model, default_lang=canonical(lang) if lang else None, unknown=unknown, device=device)
    options: dict[str, Any] = {"lang_column": lang_column, "prompt_column": prompt_column, **where.mapping()}
    rows = apply_maps(maps, source, output, column=column, prompt=prompt, **options)
    say(f"{plural(rows, 'row')}: {output}")


def export(
    model: Annotated[str, Argument(help="Saved aligned model, saved alignment, or registered name.")],
    folder: Annotated[Path | None, Option("--numpy", help="Directory for the maps and code to apply them.")] = None,
    graph: Annotated[Path | None, Option("--onnx", help="ONNX file to write.")] = None,
    lang: Annotated[str | None, Option(help="Language of texts that have none.")] = None,
    unknown: Policy = None,
    device: Device = None,
) -> None:
    """Write a model's maps for services that lack xalign: for numpy or for ONNX Runtime."""
    from xalign_models.languages import canonical
    from xalign_models.models.exporting import export_numpy, export_onnx
    from xalign_models.models.maps import load_maps

    if folder is None and graph is None:
        raise ModelError("Say what to write: add --numpy DIR or --onnx FILE.")
    if folder:
        require_replaceable(folder, "map.json", "--numpy")
    maps = load_maps(model, default_lang=canonical(lang) if lang else None, unknown=unknown, device=device)
    length = maps.settings["length"]
    given = f", for vectors of length {length:.3g}" if length else ""
    for path, write in ((folder, export_numpy), (graph, export_onnx)):
        if path is not None:
            write(maps, path)
            say(f"{maps.aligned.method}: {path}{given}")


@with_options
def parity(
    first: Annotated[str, Argument(help="Name, openai:MODEL, vectors:FILE, directory or hub id.")],
    second: Annotated[str, Argument(help="The same model, served another way.")],
    texts: Annotated[str, Option(help="File with one text per line, or corpus.")],
    languages: Languages = None,
    limit: Limit = None,
    tolerance: Annotated[float, Option(min=0, help="Cosine distances up to this count as equal.")] = 1e-8,
    *,
    vectors: VectorOptions,
    device: Device = None,
    json: Json = False,
) -> None:
    """Compare two ways to serve a model and find why they differ.

    Exits with 0 if the vectors are the same and with 1 if not.
    """
    from xalign_models.corpora.registry import texts_of
    from xalign_models.parity.compare import compare
    from xalign_models.parity.served import Served

    most = limit or (None if expanded(texts).is_file() else PER_LANGUAGE)
    listed = texts_of(texts, language_codes(languages, None, all=None), most)
    served, other = (Served(model, device, **asdict(vectors)) for model in (first, second))
    result = compare(served, other, listed, tolerance)
    if json:
        print_json(asdict(result))
    else:
        print_rows([asdict(row) for row in result.rows])
        for cause in result.causes:
            say(f"{cause.kind}: {cause.text}")
        changed = f"least cosine {result.least:.9f}, nearest neighbour of {result.neighbours:.1%} of texts changes"
        say(f"{'the same' if result.same else 'different'}: {changed}")
    raise typer.Exit(0 if result.same else 1)
