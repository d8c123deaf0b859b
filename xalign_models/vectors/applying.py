"""``xalign apply``: maps vector files of any size part by part, and resumes after a kill."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from xalign_models.errors import FileError, LanguageError, ModelError
from xalign_models.files import read_json
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.progress import live
from xalign_models.specs import digest
from xalign_models.vector_files.parquet import (
    LANGUAGES,
    batches,
    column_of,
    matrix_of,
    open_parquet,
    parquet_files,
    reading,
    require_finite,
    vector_column,
    writer,
)

if TYPE_CHECKING:
    from xalign_models.models.maps import Maps

PART_ROWS = 1 << 18
"""Maximum rows of a part, unless a row group has more; a kill loses at most one part."""
MANIFEST = "_xalign.json"
"""File in the output that identifies its input; readers of parquet directories skip names starting with ``_``."""


@dataclass(frozen=True)
class Job:
    """The maps of a model, the folder of parts, the column of vectors, and the choice of maps, as in `apply`."""

    maps: Maps
    folder: Path
    column: str
    lang_column: str | None
    prompt: str | None
    prompt_column: str | None


@dataclass(frozen=True)
class FilePart:
    """Consecutive row groups of an input file, from its row ``first`` on, and the name of their output file."""

    name: str
    source: Path
    groups: tuple[int, ...]
    first: int
    rows: int


def in_turn(function: Callable[..., Any], common: Any, items: Iterable[Any]) -> Iterable[Any]:
    """``function(common, item)`` of each item, in this process."""
    return map(partial(function, common), items)


def apply(
    maps: Maps,
    source: Path,
    output: Path,
    *,
    column: str | None = None,
    lang_column: str | None = None,
    prompt: str | None = None,
    prompt_column: str | None = None,
    each: Callable[..., Iterable[Any]] = in_turn,
) -> int:
    """Map the vectors of parquet files; other columns, the order of rows and the vectors' type are kept.

    The output is a directory of parts, like Spark's. Parts are written beside the output, and the directory is renamed
    when all exist. The same call resumes an interrupted run.

    Args:
        maps: The maps of a model.
        source: A parquet file or a directory of such files.
        output: The directory to write; it must not exist, unless the same call wrote it.
        column: Column of vectors; by default the only list of numbers, or the column ``vector`` or ``embedding``.
        lang_column: Column of languages, in any code; by default one of :data:`LANGUAGES`. It is required if maps
            differ by language and the model has no ``default_lang``.
        prompt: Name or text of the prompt that rows were encoded with if they have none in ``prompt_column``; None for
            the model's default prompt.
        prompt_column: Column of the rows' prompts, by name or text, such as ``query`` and ``passage``.
        each: Yields ``function(common, item)`` of each item, in order, as
            ``xalign_models.cluster.Cluster.map`` does on a cluster; by default in this process.

    Returns:
        Number of rows.

    Raises:
        FileError: An input is damaged, a vector is missing, ragged or not finite, or an earlier output lacks a part.
        LanguageError: A language is missing or was not fitted.
        AlignmentError: A prompt was not fitted.
        ModelError: The output exists and has another input, another process is writing it, or the vectors have another
            length than the vectors that the maps were fitted on.
    """
    source, output = source.absolute(), output.absolute()
    files = parquet_files(source)
    schema = open_parquet(files[0]).schema_arrow
    column = vector_column(schema, files[0], column)
    for file in files:
        if not open_parquet(file).schema_arrow.equals(schema):
            raise FileError(f"{file} has other columns than {files[0]}.")
    for name in (lang_column, prompt_column):
        if name is not None and name not in schema.names:
            raise FileError(f"{files[0]} has no column {name}; it has {', '.join(schema.names)}.")
    if lang_column is None:
        lang_column = next((name for name in LANGUAGES if name in schema.names), None)
    folder = output.with_name(f".{output.name}.parts")
    language = lang_column if maps.settings["languages"] else None
    job = Job(maps, folder, column, language, prompt, prompt_column)
    _require_fitted(job, files)
    head = next(batches(files[0], column, [column]), None)
    if head is not None and (reason := maps.misfit(matrix_of(head.column(column), str(files[0])))):
        raise ModelError(reason)
    parts = list(_parts(files))
    total = sum(part.rows for part in parts)
    identity: dict[str, object] = {
        "maps": maps.fingerprint,
        "input": digest([_state(file) for file in files]),
        "column": column,
        "lang_column": lang_column,
        "rows": total,
        **({"prompt": prompt, "prompt_column": prompt_column} if prompt or prompt_column else {}),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(output.with_name(f".{output.name}.lock"), timeout=0):
            if output.exists():
                _require_same(output, identity)
                _require_whole(output, parts)
                return total
            folder.mkdir(exist_ok=True)
            if not (folder / MANIFEST).is_file() or not any(folder.glob("part-*")):
                atomic_write_text(folder / MANIFEST, json.dumps(identity, indent=2) + "\n")
            _require_same(folder, identity)
            _remove_halves(folder)
            missing = _missing(folder, parts)
            finished = total - sum(part.rows for part in missing)
            with live(total=total, initial=finished, desc="apply", unit=" rows") as bar:
                for rows in each(write_part, job, missing):
                    bar.update(rows)
            written = sum(open_parquet(folder / part.name).metadata.num_rows for part in parts)
            if written != total:
                raise FileError(f"{folder} has {written} of {total} rows; remove it and start again.")
            _remove_halves(folder)
            folder.rename(output)
    except Timeout:
        raise ModelError(f"Another process is writing {output}; wait for it.") from None
    output.with_name(f".{output.name}.lock").unlink(missing_ok=True)
    return total


def write_part(job: Job, part: FilePart) -> int:
    """Map a part of the input and write it atomically.

    Returns:
        Number of its rows.

    Raises:
        FileError: The input is damaged, or a vector is missing, ragged or not finite.
    """
    schema = open_parquet(part.source).schema_arrow
    kind = schema.field(job.column).type
    place = schema.get_field_index(job.column)
    label, first = str(part.source), part.first
    with atomic_file(job.folder / part.name) as temporary, writer(temporary, schema, job.column) as out:
        for batch in batches(part.source, job.column, groups=part.groups):
            rows = matrix_of(batch.column(job.column), label, first)
            require_finite(rows, label, first)
            mapped = _mapped(job, rows, batch) if len(rows) else rows
            require_finite(mapped, f"{label}, mapped", first)
            out.write_batch(batch.set_column(place, schema.field(job.column), column_of(mapped, kind)))
            first += len(batch)
    return part.rows


def _mapped(job: Job, rows: AnyFloats, batch: pa.RecordBatch) -> AnyFloats:
    codes = batch.column(job.lang_column).to_pylist() if job.lang_column else None
    names = batch.column(job.prompt_column).to_pylist() if job.prompt_column else [None] * len(rows)
    with np.errstate(over="ignore"):  # overflow in half precision is refused afterwards
        return job.maps.transform(rows, codes, [name or job.prompt for name in names])


def _require_fitted(job: Job, files: list[Path]) -> None:
    """Map a row of each combination of language and prompt, to refuse unfitted ones before writing."""
    names, missing = tuple(dict.fromkeys(filter(None, (job.lang_column, job.prompt_column)))), set[str]()
    for values in _values(files, names):
        found = dict(zip((*names, None), (*values, None), strict=True))
        code, prompt = found[job.lang_column], found[job.prompt_column] or job.prompt
        try:
            job.maps.transform(np.zeros((1, job.maps.settings["dim"]), np.float32), code, prompt)
        except LanguageError:
            missing.add(code or "")
    if "" in missing:
        method = job.maps.settings["method"]
        raise LanguageError(f"{method} needs every row's language: name a column with --lang-column, or give --lang.")
    if missing:
        raise LanguageError(
            f"{job.maps.settings['method']} is not fitted for rows in {', '.join(sorted(missing)[:20])}; fitted "
            f"languages are {', '.join(job.maps.settings['languages'])}. With --unknown related, such rows get a "
            "relative's map."
        )


def _values(files: list[Path], columns: tuple[str, ...]) -> list[tuple[str | None, ...]]:
    """The combinations of language and prompt in the files."""
    if not columns:
        return [()]
    rows: set[tuple[str | None, ...]] = set()
    for file in files:
        for batch in batches(file, columns[0], [*columns]):
            with reading(file):
                distinct = pa.Table.from_batches([batch]).group_by([*columns]).aggregate([])
                rows.update(zip(*(distinct.column(name).to_pylist() for name in columns), strict=True))
    for place, column in enumerate(columns):
        if wrong := [row[place] for row in rows if not isinstance(row[place], str | None)]:
            raise FileError(f"{files[0]}, column {column}: expected texts, not {wrong[0]!r}.")
    return sorted(rows, key=str)


def _parts(files: list[Path]) -> Iterator[FilePart]:
    count = 0
    for file in files:
        metadata = open_parquet(file).metadata
        first, groups, rows = 0, [], 0
        for group in range(metadata.num_row_groups):
            groups.append(group)
            rows += metadata.row_group(group).num_rows
            last = group + 1 == metadata.num_row_groups
            if last or rows + metadata.row_group(group + 1).num_rows > PART_ROWS:
                yield FilePart(f"part-{count:08d}.parquet", file, tuple(groups), first, rows)
                count, first, groups, rows = count + 1, first + rows, [], 0


def _state(file: Path) -> tuple[object, ...]:
    """Identify a file by its name, size, times and footer, without reading all of it."""
    stat = file.stat()
    with file.open("rb") as handle:
        handle.seek(-8, 2)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(-8 - length, 2)
        footer = hashlib.sha256(handle.read(length)).hexdigest()
    return file.name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, footer


def _require_same(folder: Path, identity: dict[str, object]) -> None:
    try:
        written = read_json(folder / MANIFEST)
    except FileError:
        raise ModelError(f"{folder} exists and is not an output of `xalign apply`; choose another output.") from None
    if written != identity:
        raise ModelError(f"{folder} comes from other vectors, maps or options; remove it, or choose another output.")


def _require_whole(output: Path, parts: Iterable[FilePart]) -> None:
    if lost := _missing(output, parts):
        raise FileError(f"{output / lost[0].name} is missing or damaged; remove {output} and start again.")


def _remove_halves(folder: Path) -> None:
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def _missing(folder: Path, parts: Iterable[FilePart]) -> list[FilePart]:
    def is_whole(path: Path, rows: int) -> bool:
        with suppress(FileError):
            return path.is_file() and bool(open_parquet(path).metadata.num_rows == rows)
        return False

    return [part for part in parts if not is_whole(folder / part.name, part.rows)]
