"""Parquet files of vectors: their column, batches, and conversion from arrays to matrices and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xalign_models.errors import FileError, one_line
from xalign_models.files import require_regular
from xalign_models.linalg.arrays import AnyFloats

NAMES = ("vector", "vectors", "embedding", "embeddings")
"""Names of the column of vectors, if a file has several lists of numbers."""
LANGUAGES = ("lang", "language", "langs", "languages")
"""Names of a column of languages."""
BATCH_BYTES = 16 << 20
"""Bytes of vectors in a batch; memory holds two of them, before and after the map."""
BATCH_ROWS = 1 << 14
"""Maximum rows of a batch, as the first rows of a file, which set its size, may have no vectors."""


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or the files of a directory of parts in the order of their names.

    Raises:
        FileError: There are no files.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileError(f"{path} cannot be read: it does not exist or has no *.parquet files.")
    return files


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Replace pyarrow's errors for a damaged file by one line.

    Raises:
        FileError: In place of pyarrow's errors.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise FileError(f"{path} is not a readable parquet file ({one_line(error)[:200]}).") from None


def open_parquet(path: Path) -> pq.ParquetFile:
    """A parquet file whose pages are read on demand, so that row groups of any size take little memory.

    Raises:
        FileError: It is missing or damaged.
    """
    with reading(path):
        return pq.ParquetFile(require_regular(path), pre_buffer=False, buffer_size=1 << 20)


def batches(
    path: Path, column: str, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in order, about :data:`BATCH_BYTES` of vectors and :data:`BATCH_ROWS` at most at a time.

    Args:
        path: The file.
        column: The column of vectors.
        columns: The columns to read; all by default.
        groups: The row groups to read; all by default.

    Raises:
        FileError: The file is damaged.
    """
    file = open_parquet(path)
    size = 1024
    first = groups[0] if groups else 0
    if file.metadata.num_row_groups and file.metadata.row_group(first).num_rows:
        with reading(path):
            head = next(file.iter_batches(16, row_groups=[first], columns=[column], use_threads=False))
            size = min(BATCH_ROWS, max(1, BATCH_BYTES * len(head) // max(1, head.nbytes)))
    rows = file.iter_batches(size, row_groups=groups, columns=columns, use_threads=False)
    while True:
        with reading(path):
            batch = next(rows, None)
        if batch is None:
            return
        yield batch


def vector_column(schema: pa.Schema, path: Path, wanted: str | None = None) -> str:
    """The name of the column of vectors.

    Args:
        schema: The file's schema.
        path: The file, for messages.
        wanted: The user's choice; by default the only list of numbers, or the column with a name of :data:`NAMES`.

    Raises:
        FileError: There is no such column, or there are several.
    """
    lists = [field.name for field in schema if _is_list_of_numbers(field.type)]
    named = [name for name in lists if name == wanted or (wanted is None and name in NAMES)]
    chosen = named or (lists if wanted is None else [])
    if len(chosen) != 1:
        available = f"its lists of numbers are {', '.join(lists)}" if lists else "it has no column of lists of numbers"
        raise FileError(f"{path}: which column are the vectors? {available}; name one of them with --column.")
    return str(chosen[0])


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    kind = getattr(kind, "storage_type", kind)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def matrix_of(column: pa.Array, source: str, first: int = 0) -> AnyFloats:
    """A column of vectors as a matrix (n, d) in its own float type, without a copy.

    Args:
        column: Lists of equal length.
        source: Name of the source, for messages.
        first: Number of its first row, for errors.

    Raises:
        FileError: A row is missing or of another length, or its numbers are not floats; the message names the row.
    """
    column = getattr(column, "storage", column)
    value = column.type.value_type
    if not pa.types.is_floating(value):
        raise FileError(f"{source}: vectors of type {value}; give float16, float32 or float64.")
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise FileError(f"{source}: row {row} has no vector.")
    values = column.flatten()
    if values.null_count:
        raise FileError(f"{source}: numbers that are missing from row {first} on: {values.null_count}.")
    if not len(column):
        return np.empty((0, 0), values.type.to_pandas_dtype())
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if (ragged := np.flatnonzero(lengths != lengths[0])).size:
        row = int(ragged[0])
        raise FileError(f"{source}: row {first + row} has the length {lengths[row]}, and others {lengths[0]}.")
    matrix: AnyFloats = values.to_numpy(zero_copy_only=True).reshape(len(column), int(lengths[0]))
    return matrix


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column; bytes that are UTF-8, as writers without a type of texts leave them, as texts."""
    with suppress(pa.ArrowInvalid):
        column = column.cast(pa.string()) if column.type in (pa.binary(), pa.large_binary()) else column
    return list(column.to_pylist())


def column_of(matrix: AnyFloats, kind: pa.DataType) -> pa.Array:
    """Rows of a matrix as a column of the type that they were read from; the inverse of :func:`matrix_of`."""
    storage = getattr(kind, "storage_type", kind)
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1), storage.value_type)
    column = pa.FixedSizeListArray.from_arrays(values, max(1, matrix.shape[1])).cast(storage)
    return pa.ExtensionArray.from_storage(kind, column) if storage is not kind else column


def writer(path: Path, schema: pa.Schema, column: str) -> pq.ParquetWriter:
    """A writer that spends no dictionaries or statistics on vectors."""
    others = [name for name in schema.names if name != column]
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=others, write_statistics=others)


def require_finite(matrix: AnyFloats, source: str, first: int = 0) -> None:
    """Refuse rows with NaN or infinity; the message names the first such row.

    Raises:
        FileError: There are such rows.
    """
    flat = matrix.reshape(-1)
    with np.errstate(over="ignore"):
        if matrix.dtype != np.float16 and np.isfinite(np.dot(flat, flat)):  # finite if all numbers are; no temporary
            return
    if (bad := np.flatnonzero(~np.isfinite(matrix).all(axis=1))).size:
        raise FileError(f"{source}: row {first + int(bad[0])} is not finite; remove or encode it again.")
