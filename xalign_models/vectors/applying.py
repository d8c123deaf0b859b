"""``xalign apply``: maps files of vectors of any size part by part, and resumes after a kill."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout

from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json
from xalign_models.models.maps import Maps
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.progress import live
from xalign_models.specs import digest
from xalign_models.vector_files.parquet import (
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

PART_ROWS = 1 << 18
"""Maximum rows of a part, unless a row group has more; a kill loses at most one part."""
MANIFEST = "_xalign.json"
"""File in the output that identifies its input; readers of parquet directories skip names that begin with ``_``."""


@dataclass(frozen=True)
class Job:
    """The maps of a model, the column of vectors, the columns that choose a map, and the folder of the parts."""

    maps: Maps
    folder: Path
    column: str
    keys: tuple[str, ...]
    table: dict[tuple[str | None, ...], int | None]


@dataclass(frozen=True)
class FilePart:
    """Consecutive row groups of an input file, from its row ``first`` on, and the name of their output file."""

    name: str
    source: Path
    groups: tuple[int, ...]
    first: int
    rows: int


def apply(
    maps: Maps,
    source: Path,
    output: Path,
    *,
    column: str | None = None,
    lang_column: str | None = None,
    prompt: str | None = None,
    prompt_column: str | None = None,
    run: Callable[[Job, list[FilePart]], Iterator[int]] | None = None,
) -> int:
    """Map the vectors of parquet files; other columns, the order of rows and the vectors' type are kept.

    The output is a directory of parts, like Spark's. Parts are written beside the output, and the directory is renamed
    when all exist. The same call resumes an interrupted run.

    Args:
        maps: The maps of a model.
        source: A parquet file or a directory of such files.
        output: The directory to write; it must not exist, unless the same call wrote it.
        column: Column of vectors; by default the only list of numbers, or the column ``vector`` or ``embedding``.
        lang_column: Column of languages, in any code; required if maps differ by language and the model has no
            ``default_lang``.
        prompt: Name or text of the prompt that rows were encoded with if they have none in ``prompt_column``; None for
            the model's default prompt.
        prompt_column: Column of the rows' prompts, by name or text, such as ``query`` and ``passage``.
        run: Writes parts and yields the number of rows of each; by default in this process.

    Returns:
        Number of rows.

    Raises:
        FileError: An input is damaged, or a vector is missing, ragged or not finite.
        LanguageError: A language is missing or was not fitted.
        AlignmentError: A prompt was not fitted.
        ModelError: The output exists and has another input, or another process is writing it.
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
    language = lang_column if maps.aligned.languages is not None else None
    keys = tuple(name for name in (language, prompt_column) if name)
    occurring = {
        values: (values[0] if language else None, values[-1] if prompt_column else None)
        for values in _values(files, keys)
    }
    numbers = {
        role: maps.index({code for code, other in occurring.values() if other == role}, role or prompt)
        for role in {role for _, role in occurring.values()}
    }
    table = {values: numbers[role][code] for values, (code, role) in occurring.items()}
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
    folder = output.with_name(f".{output.name}.parts")
    job = Job(maps, folder, column, keys, table)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(output.with_name(f".{output.name}.lock"), timeout=0):
            if output.exists():
                _require_same(output, identity)
                return total
            folder.mkdir(exist_ok=True)
            if not (folder / MANIFEST).is_file():
                atomic_write_text(folder / MANIFEST, json.dumps(identity, indent=2) + "\n")
            _require_same(folder, identity)
            _remove_halves(folder)
            missing = [part for part in parts if not _is_whole(folder / part.name, part.rows)]
            finished = total - sum(part.rows for part in missing)
            with live(total=total, initial=finished, desc="apply", unit=" rows") as bar:
                for rows in run(job, missing) if run else (write_part(job, part) for part in missing):
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
            mapped = job.maps.apply(rows, _numbers(job, batch)) if len(rows) else rows
            require_finite(mapped, f"{label}, mapped", first)
            out.write_batch(batch.set_column(place, schema.field(job.column), column_of(mapped, kind)))
            first += len(batch)
    return part.rows


def _numbers(job: Job, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | int | None:
    """The map of each row, or -1 for no map; a single number or None if all rows have the same map."""
    if len(set(job.table.values())) == 1:
        return next(iter(job.table.values()))
    numbers = np.array([-1 if number is None else number for number in job.table.values()], dtype=np.int64)
    places = np.zeros(len(batch), dtype=np.int64)
    seen = [dict.fromkeys(values) for values in zip(*job.table, strict=True)]  # distinct values of each column
    for name, values in zip(job.keys, seen, strict=True):
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        place = pc.index_in(column, pa.array([*values], column.type)).to_numpy(zero_copy_only=False)
        places = places * len(values) + place
    order = {values: place for place, values in enumerate(product(*seen))}
    by_place = np.full(len(order), -1, dtype=np.int64)
    by_place[[order[values] for values in job.table]] = numbers
    chosen: npt.NDArray[np.int64] = by_place[places]
    return int(chosen[0]) if chosen[0] >= 0 and (chosen == chosen[0]).all() else chosen


def _values(files: list[Path], columns: tuple[str, ...]) -> list[tuple[str | None, ...]]:
    """The languages and prompts that occur together in the files, to refuse unfitted ones before writing."""
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
    """Identify a file by its name, size, times and footer, without reading it whole."""
    stat = file.stat()
    with file.open("rb") as handle:
        handle.seek(-8, 2)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(-8 - length, 2)
        footer = hashlib.sha256(handle.read(length)).hexdigest()
    return file.name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, footer


def _require_same(folder: Path, identity: dict[str, object]) -> None:
    with suppress(FileError):
        if read_json(folder / MANIFEST) == identity:
            return
    raise ModelError(f"{folder} comes from other vectors, maps or options; remove it, or choose another output.")


def _remove_halves(folder: Path) -> None:
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def _is_whole(path: Path, rows: int) -> bool:
    with suppress(FileError):
        return path.is_file() and bool(open_parquet(path).metadata.num_rows == rows)
    return False
