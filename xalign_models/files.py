"""Bounded readers of files (JSON, logs of JSON lines, NPZ, safetensors headers), and digests of files.

Each reader limits the size, checks the type and raises FileError; none runs code.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import logging
import math
import os
import re
import stat
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, one_line

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

MOST_JSON = 64 << 20
"""Maximum size of a JSON file in bytes."""
RACY = 2_000_000_000
"""Nanoseconds within which a file may change without a new timestamp; younger files are always read."""
_LARGEST = sys.float_info.max
_CHUNK = 1 << 20
_LONGEST = 1 << 16  # header of an array
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that may be half of a surrogate pair, which UTF-8 cannot encode."""
LONE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair in a text."""
_WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
    "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip

_digests: ContextVar[dict[Path, str] | None] = ContextVar("_digests", default=None)

T = TypeVar("T", dict[str, Any], list[Any])


@overload
def read_json(path: Path, *, most: int = ...) -> dict[str, Any]: ...
@overload
def read_json(path: Path, kind: type[T], *, most: int = ...) -> T: ...
def read_json(path: Path, kind: Any = dict, *, most: int = MOST_JSON) -> Any:
    """The content of a JSON file of at most ``most`` bytes, whose type is ``kind``, ``dict`` or ``list``.

    Raises:
        FileError: The file is missing, too long, not UTF-8, not JSON, nested too deeply, or of another type.
    """
    return parse_json(read_bytes(path, most), str(path), kind)


def parse_json(content: bytes, name: str, kind: type | tuple[type, ...] = dict) -> Any:
    """Like :func:`read_json` for bytes; ``name`` is for error messages."""
    try:
        value = _parse(content.removeprefix(codecs.BOM_UTF8))
    except (RecursionError, ValueError) as error:
        if "recursion" in str(error):  # either parser's word for it; ours takes 200 levels
            raise FileError(f"{name} is damaged: its JSON is nested too deeply.") from None
        reason = one_line(error)[:200] if "digits" not in str(error) else "a number has too many digits"
        raise FileError(f"{name} is damaged: not JSON ({reason}).") from None
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list" if kind is list else "an object or a list"
        raise FileError(f"{name} is damaged: {expected} was expected, not {type(value).__name__}.")
    if _HALF.search(content) and any(isinstance(part, str) and LONE.search(part) for part in walk(value)):
        raise FileError(f"{name} is damaged: it contains half of a surrogate pair.")
    return value


def _parse(content: bytes) -> Any:
    """JSON by the fast parser; by Python's, whose messages name the place, where that one fails."""
    from pydantic_core import from_json

    try:
        return from_json(content)
    except ValueError as error:
        if "recursion" in str(error):
            raise
        return json.loads(content.decode("utf-8"))


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number in the range of floats; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def walk(value: Any) -> Any:
    """Every part of parsed JSON, keys too, without recursion."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, Mapping):
            pending += (inner for item in part.items() for inner in item)
        elif isinstance(part, list):
            pending += part


def require_regular(path: Path, most: int | None = None) -> Path:
    """The path of a regular file of at most ``most`` bytes; opening a pipe would block, and a device never ends.

    Raises:
        FileError: It is missing, too long, or something else.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not stat.S_ISREG(state.st_mode):
        raise FileError(f"{path} cannot be read: it is not a file.")
    if most is not None and state.st_size > most:
        raise FileError(f"{path} is longer than {most} bytes.")
    return path


def read_bytes(path: Path, most: int = 4 << 30) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises:
        FileError: It is missing, unreadable, too long, or not a regular file.
    """
    try:
        with require_regular(path, most).open("rb", buffering=_CHUNK) as file:
            size = os.fstat(file.fileno()).st_size or most + 1  # unknown; asking for more reserves memory
            content = file.read(min(size, most + 1))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(content) > most:
        raise FileError(f"{path} is longer than {most} bytes.")
    if (digests := _digests.get()) is not None:
        digest = hashlib.sha256(content).hexdigest()
        if digests.setdefault(path, digest) != digest:
            raise FileError(f"{path} changed while it was in use. Run the command again.")
    return content


@contextmanager
def noting(digests: dict[Path, str]) -> Iterator[None]:
    """Note the sha256 (hex) of every file that is read or hashed in this context, so that both see the same bytes.

    Raises:
        FileError: A file's digest differs from the one already noted.
    """
    token = _digests.set(digests)
    try:
        yield
    finally:
        _digests.reset(token)


def read_log(path: Path, *, most: int = 4 << 30) -> tuple[list[dict[str, Any]], int]:
    """The records of a log of JSON lines, and the number of damaged lines.

    Truncated lines and lines without a JSON object count as damaged.

    Raises:
        FileError: The file exists but is unreadable or too long.
    """
    records: list[dict[str, Any]] = []
    damaged = 0
    if not path.is_file():
        return records, damaged
    for line in read_bytes(path, most).splitlines():
        try:
            records.append(parse_json(line, str(path)))
        except FileError:
            damaged += 1
    return records, damaged


def read_npz(path: Path, *, most: int = 8 << 30) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an NPZ file, of at most ``most`` bytes in all; objects are refused.

    Raises:
        FileError: The file is missing, damaged, too large, or holds objects.
    """
    small = require_regular(path).stat().st_size < _CHUNK  # such files are read at once: members need many reads
    try:
        with zipfile.ZipFile(io.BytesIO(path.read_bytes()) if small else path) as archive:
            named = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if sum(member.file_size for member in named.values()) > most:
                raise FileError(f"{path} is larger than {most} bytes.")
            return {name: _array(archive, member, f"{path}: {name}") for name, member in named.items()}
    except FileError:
        raise
    except Exception as error:  # a damaged archive raises errors of many kinds
        raise FileError(f"{path} is damaged ({one_line(error)[:200]}).") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> npt.NDArray[Any]:
    """An array of an NPZ file, whose header may not ask for more memory than the member has bytes."""
    small = member.file_size < _CHUNK  # read at once, as below
    with io.BytesIO(archive.read(member)) if small else archive.open(member) as file:
        head = file.read(12)
        end = 10 if head[6:7] == b"\1" else 12  # of the header's length
        size = end + int.from_bytes(head[8:end], "little")
        head += file.read(min(size, _LONGEST) - len(head))
        shape, by_columns, dtype = _npy_header(head)
        most, length = member.file_size, member.file_size - len(head)
        if dtype.hasobject:
            raise FileError(f"{name} holds Python objects (pickle). Save texts with dtype=str, numbers with float32.")
        if math.prod(shape) * dtype.itemsize != length or max(shape, default=0) > most or not dtype.itemsize:
            if not length and 0 in shape:
                raise FileError(f"{name} has no numbers; its shape is {shape}.")
            raise ValueError(f"the length of {member.filename} contradicts its shape")
        array: npt.NDArray[Any] = np.empty(shape[::-1] if by_columns else shape, dtype)
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, length, _CHUNK):
            flat[start : start + _CHUNK] = np.frombuffer(file.read(min(_CHUNK, length - start)), np.uint8)
        file.read(1)  # reaches the end, where the checksum is compared
        return array.T if by_columns else array


@lru_cache(maxsize=1024)
def _npy_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array, from the start of its file up to the numbers."""
    file = io.BytesIO(head)
    first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(file)
    return header


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, most: int = 1 << 30) -> pa.Table:
    """The table in a parquet file, or some of its columns, of at most ``most`` bytes in memory.

    Texts are read as references to a dictionary and counted before they are written out: a file of 1 MB may repeat one
    text a million times.

    Raises:
        FileError: The file is missing, damaged or too large, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    size, batches = 0, []
    try:
        source = pa.BufferReader(read_bytes(path, most))
        schema = pq.read_schema(source)
        texts = [column.name for column in schema if pa.types.is_string(column.type)]
        with pq.ParquetFile(source, read_dictionary=texts) as file:
            for batch in file.iter_batches(1 << 12, columns=columns):
                for column in batch.columns:
                    size += column.nbytes + 8 * len(column)
                    if isinstance(column, pa.DictionaryArray):
                        size += pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
                if size > most:
                    raise FileError(f"{path} has more than {most} bytes of values.")
                batches.append(batch)
            fields = [column for column in schema if columns is None or column.name in columns]
            if columns and len(fields) < len(columns):
                raise FileError(f"{path} lacks one of the columns {', '.join(columns)}.")
            table = pa.Table.from_batches(batches) if batches else pa.schema(fields).empty_table()
            table = table.cast(pa.schema([schema.field(name) for name in table.column_names]))
            table.validate(full=True)  # text is UTF-8
            return table
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # damage shows as any of them
        raise FileError(f"{path} is not a readable parquet file ({one_line(error)}).") from None


@dataclass(frozen=True)
class TensorHeader:
    """A tensor's entry in a safetensors header: type (``F32``), shape, and position of its first byte in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int = field(default=0, compare=False)


def safetensors_header(path: Path) -> dict[str, TensorHeader]:
    """Names, types and shapes of the tensors in a safetensors file, checked against the file's length.

    Raises:
        FileError: The file is missing, its header is damaged, or its length contradicts the header.
    """
    try:
        length = require_regular(path).stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            head += file.read(min(int.from_bytes(head, "little"), MOST_JSON))
    except OSError as error:
        raise FileError(f"{path} cannot be read as safetensors ({one_line(error)[:200]}).") from None
    return parse_safetensors(head, str(path), length)


def parse_safetensors(content: Any, name: str, length: int | None = None) -> dict[str, TensorHeader]:
    """Like :func:`safetensors_header` for bytes: a file, or its header alone and the file's length in bytes.

    Raises:
        FileError: The file's length differs from that in its header, or its header is damaged.
    """
    length = len(content) if length is None else length
    size = int.from_bytes(content[:8], "little")
    if length < 8 or size > min(MOST_JSON, length - 8):
        raise FileError(f"{name} is cut off or damaged: its header does not fit into the file.")
    header = parse_json(bytes(content[8 : 8 + size]), name)
    tensors, end = {}, 0
    header.pop("__metadata__", None)
    for tensor, entry in header.items():
        try:
            dtype, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
            first, last = map(int, entry["data_offsets"])
            fits = last - first == math.prod(shape) * _WIDTHS.get(dtype, 0) or dtype not in _WIDTHS
        except (TypeError, KeyError, ValueError):
            raise FileError(f"{name} is damaged: its header has no valid entry for {tensor}.") from None
        if not fits or first < 0 or last < first:
            raise FileError(f"{name} is damaged: the length of {tensor} contradicts its shape.")
        tensors[tensor], end = TensorHeader(dtype, shape, 8 + size + first), max(end, last)
    if 8 + size + end != length:
        raise FileError(f"{name} is cut off or damaged: {8 + size + end} bytes were expected, not {length}.")
    return tensors


def sha256_file(path: Path) -> str:
    """Sha256 (hex) of a regular file's content."""
    with require_regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_of(status: os.stat_result) -> list[int]:
    """Size, time of modification and of change (ns), inode and device: a file cannot change and keep them all.

    However, two changes within :data:`RACY` may have the same time.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def file_digest(path: Path) -> str:
    """Like :func:`sha256_file`, but read again only if the file is young, or its size, times or inode change.

    Within :func:`noting`, it is the digest of the bytes that were read.
    """
    digests = _digests.get()
    if digests is not None and path in digests:
        return digests[path]
    state = state_of(path.stat())
    digest = sha256_file(path) if state[2] > time.time_ns() - RACY else _file_digest(path.resolve(), *state)
    return digest if digests is None else digests.setdefault(path, digest)


@lru_cache(maxsize=4096)
def _file_digest(path: Path, *_: int) -> str:
    return sha256_file(path)


def set_aside(path: Path, reason: str) -> Path | None:
    """Rename a damaged file, with a warning, so that the next run ignores it.

    Returns:
        The new path; None if renaming failed, as in a read-only directory.
    """
    target = path.with_name(f"{path.name}.damaged")
    with suppress(OSError):
        path.replace(target)
        logger.warning("%s The file is set aside as %s.", reason, target.name)
        return target
    logger.warning("%s The file cannot be renamed and is not used.", reason)
    return None
