"""Reads files of vectors with a text or an id for each: parquet, npz and safetensors."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xalign_models.errors import FileError
from xalign_models.files import parse_json, read_npz, safetensors_header
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.vector_files.parquet import (
    NAMES,
    batches,
    matrix_of,
    open_parquet,
    parquet_files,
    reading,
    require_finite,
    vector_column,
)

BY = ("text", "id")
"""Columns that identify vectors, in order of preference."""
MOST = 8 << 30
"""Maximum bytes of vectors of a file in memory."""
SHORTEST, LONGEST = 1e-12, 1e18
"""Lengths of vectors whose squares float32 keeps."""
_KEY = re.compile(r"[0-9a-f]{32}")
_FLOATS = {"F16", "F32", "F64"}


@dataclass(frozen=True)
class VectorRows:
    """Rows of a file.

    Attributes:
        by: ``text`` or ``id``.
        names: The text or the id of each.
        matrix: (n, d), float16, float32 or float64.
    """

    by: str
    names: list[str]
    matrix: AnyFloats

    @cached_property
    def row(self) -> dict[str, int]:
        """Name to its row, or to the last of equal rows."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def hashed(self) -> bool:
        """Whether the names are hashes of prompt and text, as ``xalign store export`` writes them."""
        return self.by == "id" and all(map(_KEY.fullmatch, self.names))


def read_vectors(path: Path) -> VectorRows:
    """The vectors of a file, checked.

    Args:
        path: Parquet, a directory of parquet parts, npz or safetensors.

    Raises:
        FileError: The file is missing, damaged or too large; it has no texts, a text with two vectors, or vectors that
            are not finite, zero or of different dimensions.
    """
    parts, size = [], 0
    for rows in read_batches(path):
        parts.append(rows)
        size += rows.matrix.nbytes
        if size > MOST:
            raise FileError(f"{path} has more than {MOST >> 30} GiB of vectors; `xalign apply` streams any size.")
    if not parts:
        raise FileError(f"{path} has no rows.")
    names = [name for rows in parts for name in rows.names]
    vectors = VectorRows(parts[0].by, names, np.concatenate([rows.matrix for rows in parts]))
    for number, name in enumerate(vectors.names):
        other = vectors.row[name]
        if other != number and not np.array_equal(vectors.matrix[number], vectors.matrix[other]):
            raise FileError(
                f"{path}: rows {number} and {other} have different vectors for one {vectors.by}, {name[:80]!r}."
            )
    return vectors


def read_batches(path: Path) -> Iterator[VectorRows]:
    """The rows of a file in order, each batch checked; of parquet in bounded memory.

    Raises:
        FileError: As for :func:`read_vectors`; rows of one name in several batches are not compared.
    """
    kind = ".parquet" if path.is_dir() else path.suffix
    readers = {".parquet": _parquet, ".npz": _npz, ".safetensors": _safetensors}
    if kind not in readers:
        raise FileError(f"{path} is not a file of vectors; supported are {', '.join(readers)}.")
    dim, first = 0, 0
    for rows in readers[kind](path):
        if not (rows.names or len(rows.matrix)):
            continue
        dim = dim or rows.matrix.shape[1]
        _check(rows, str(path), dim, first)
        first += len(rows.names)
        yield rows


def _check(rows: VectorRows, source: str, dim: int, first: int) -> None:
    if not dim:
        raise FileError(f"{source}: the vectors have no numbers.")
    if rows.matrix.shape[1] != dim:
        raise FileError(f"{source}: row {first} has the length {rows.matrix.shape[1]}, and others {dim}.")
    if len(rows.names) != len(rows.matrix):
        raise FileError(f"{source}: {len(rows.matrix)} vectors, and {len(rows.names)} of {rows.by}.")
    require_finite(rows.matrix, source, first)
    if (zero := np.flatnonzero(~rows.matrix.any(axis=1))).size:
        raise FileError(f"{source}: row {first + int(zero[0])} is zero, one of {zero.size}; remove or encode it again.")
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows.matrix, rows.matrix, dtype=np.float64))
    if (bad := np.flatnonzero((lengths < SHORTEST) | (lengths > LONGEST))).size:
        length = lengths[bad[0]]
        raise FileError(
            f"{source}: row {first + int(bad[0])} has the length {length:.3g}, which is too "
            f"{'small' if length < SHORTEST else 'large'} for float32. Scale all vectors alike."
        )


def _parquet(path: Path) -> Iterator[VectorRows]:
    for file in parquet_files(path):
        schema = open_parquet(file).schema_arrow
        column = vector_column(schema, file)
        by = _by(schema.names, str(file))
        first = 0
        for batch in batches(file, column, [by, column]):
            names = batch.column(by)
            if names.null_count or not _is_name(names.type):
                raise FileError(f"{file}, column {by}: each row needs a text or a whole number.")
            with reading(file):  # a string of parquet may be of any bytes
                listed = list(map(str, names.to_pylist()))
            yield VectorRows(by, listed, matrix_of(batch.column(column), str(file), first))
            first += len(batch)


def _is_name(kind: pa.DataType) -> bool:
    kind = getattr(kind, "value_type", kind) if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _by(names: Sequence[str], source: str) -> str:
    column = next((name for name in BY if name in names), None)
    if column is None:
        raise FileError(f"{source} has neither {' nor '.join(BY)} to identify a vector by.")
    return column


def _npz(path: Path) -> Iterator[VectorRows]:
    arrays = read_npz(path, most=MOST)
    by = _by([*arrays], str(path))
    names = arrays.pop(by)
    if names.ndim != 1 or names.dtype.kind not in "Uiu":
        raise FileError(f"{path}: {by} is of type {names.dtype}; give a text or a whole number for each vector.")
    yield VectorRows(by, list(map(str, names.tolist())), _only_matrix(arrays, path))


def _only_matrix(arrays: dict[str, Any], path: Path) -> AnyFloats:
    named = [name for name in arrays if name in NAMES] or [name for name in arrays if arrays[name].ndim == 2]
    if len(named) != 1:
        there = ", ".join(arrays) or "none"
        raise FileError(f"{path}: which array are the vectors? Call it {NAMES[0]}; there are {there}.")
    matrix: AnyFloats = arrays[named[0]]
    if matrix.ndim != 2 or matrix.dtype not in {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}:
        shape = " x ".join(map(str, matrix.shape))
        kind = f"{shape} of type {matrix.dtype}"
        raise FileError(f"{path}: {named[0]} is {kind}; give rows of float16, float32 or float64.")
    return matrix


def _safetensors(path: Path) -> Iterator[VectorRows]:
    """Texts and ids are JSON lists in the file's metadata; ids may be a tensor of whole numbers."""
    from safetensors import SafetensorError, safe_open

    header = safetensors_header(path)
    if wrong := [name for name, tensor in header.items() if tensor.dtype not in _FLOATS and name != "id"]:
        raise FileError(f"{path}: {wrong[0]} is of type {header[wrong[0]].dtype}; give float16, float32 or float64.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in header}
    except (SafetensorError, OSError, TypeError, AttributeError) as error:  # the last two for types that NumPy lacks
        raise FileError(f"{path} cannot be read as safetensors ({' '.join(str(error).split())[:200]}).") from None
    by = _by([*metadata, *arrays], str(path))
    tensor = by not in metadata
    names = arrays.pop(by).flatten().tolist() if tensor else parse_json(metadata[by].encode(), f"{path}, {by}", list)
    if not all(isinstance(name, str | int) for name in names):
        raise FileError(f"{path}: {by} has values that are neither text nor whole number.")
    yield VectorRows(by, list(map(str, names)), _only_matrix(arrays, path))
