"""An append-only file of JSON lines, so long or paid work is never done twice."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError, FileError, LanguageError, one_line
from xalign_models.files import parse_json
from xalign_models.paths import cache_dir, in_turn

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Items in tuples of ``size``; the last may be shorter (in itertools from Python 3.12 on)."""
    remaining = iter(items)
    while batch := tuple(islice(remaining, size)):
        yield batch


def default_folder() -> Path:
    """The default folder of journals, in the cache."""
    return cache_dir() / "translations"


def read_records(path: Path, fields: str, parse: Callable[[dict[str, Any]], Item]) -> Iterator[Item]:
    """The records that ``parse`` makes from a file of JSON lines, without blank lines.

    Raises:
        DataError: A line is malformed, or ``parse`` fails on it; the message lists the expected ``fields``.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            try:
                record = parse(parse_json(line.encode(), str(path)))
            except (FileError, LanguageError, ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}: expected an object with {fields} ({one_line(error)})."
                ) from None
            yield record


class Journal:
    """Records by key; the first record of a key counts. Memory holds a 16-byte key and an offset per record.

    A batch is appended in one write, which is flushed to disk. A process that dies in the middle leaves at most half a
    line, which the next opening removes. Several processes may append; each sees the others' records after
    :meth:`refresh`.

    Args:
        path: The file, created with the first record.
        key: Names of the fields that identify a record.
    """

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path = path
        self._key = tuple(key)
        self._places: dict[bytes, int] = {}
        self._read = 0
        with self._lock():
            self._cut()
        self.refresh()

    def __len__(self) -> int:
        return len(self._places)

    def _lock(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_name(f".{self.path.name}.lock"))

    def _hash(self, values: Iterable[Any]) -> bytes:
        return hashlib.blake2b(json.dumps(list(values)).encode(), digest_size=16).digest()

    def _cut(self) -> None:
        if not self.path.is_file():
            return
        with self.path.open("rb+") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, size - 1))
            if handle.read(1) not in (b"", b"\n"):
                logger.warning("%s: removed the incomplete last line.", self.path)
                handle.truncate(self.path.read_bytes().rfind(b"\n") + 1)

    def refresh(self) -> None:
        """Read the records appended since by any process; damaged lines are skipped with a warning."""
        if not self.path.is_file() or self.path.stat().st_size == self._read:
            return
        damaged = 0
        with self.path.open("rb") as handle:
            handle.seek(self._read)
            for line in handle:
                if not line.endswith(b"\n"):
                    break  # being written
                try:
                    record = json.loads(line)
                    self._places.setdefault(self._hash(record[field] for field in self._key), self._read)
                except (ValueError, KeyError, TypeError, RecursionError):
                    damaged += 1
                self._read += len(line)
        if damaged:
            logger.warning(
                "%s: skipped %d damaged lines (not JSON objects with %s); their records will be computed again.",
                self.path,
                damaged,
                ", ".join(self._key),
            )

    def get(self, *key: Any) -> dict[str, Any] | None:
        """The record of a key, with its values in the order of the key's fields; None if there is no such record."""
        place = self._places.get(self._hash(key))
        if place is None:
            return None
        with self.path.open("rb") as handle:
            handle.seek(place)
            record: dict[str, Any] = json.loads(handle.readline())
        return record

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return self._hash(key) in self._places

    def turn(self, keys: Iterable[tuple[Any, ...]]) -> AbstractContextManager[None]:
        """Exclude other processes that fill the journal, unless it has all these keys; call :meth:`refresh` inside."""
        self.refresh()
        if all(key in self for key in keys):
            return nullcontext()
        waiting = f"Another process is filling {self.path}. This process waits, and then adds what is missing."
        return in_turn(self.path.with_name(f".{self.path.name}.turn"), waiting)

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Append records atomically: readers see all or none of them."""
        if not records:
            return
        data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with self._lock():
            self._cut()
            try:
                with self.path.open("ab") as handle:
                    handle.write(data.encode("utf-8", "surrogatepass"))
                    handle.flush()
                    os.fsync(handle.fileno())
            except OSError as error:
                error.filename = str(self.path)  # a failed write, e.g. on a full disk, does not know the name
                raise
        self.refresh()
