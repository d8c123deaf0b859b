"""The encode-once store: raw backbone vectors, shared by all alignments, tasks, language pairs and processes.

The store is an LMDB environment with one named database per encoder *namespace*, the fingerprint of everything that
turns a prompted text into a vector. A key is the 128-bit BLAKE2 hash of (prompt, text). A value is the float32 vector
and a checksum of key and vector. LMDB transactions are atomic and durable, so a killed process loses only vectors not
yet written, and readers never wait for writers. Damaged vectors are never used; they are encoded again.
"""

import logging
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import lmdb
import numpy as np

from xalign_models.errors import FileError, ModelError
from xalign_models.files import set_aside
from xalign_models.lmdb_file import kills_readers, require_installed, reserve_lock, set_aside_if_damaged
from xalign_models.paths import cache_dir

logger = logging.getLogger(__name__)

_FORM = "2:"  # prefix of the databases' names: the format of their values
_CHECK = 4  # bytes
_META = b"__used__"  # database: namespace -> time of last use, by which a full store chooses what to drop
_NOTES = b"__notes__"  # database: namespace -> digest of the tokens of a probe text
NAME = "name "  # before a namespace: its note is the model's name
_NEVER = 1e11  # seconds, in the year 5138
_GIB = 1 << 30


@dataclass(frozen=True)
class NamespaceStats:
    """Statistics of one encoder's vectors.

    Attributes:
        namespace: The encoder's fingerprint.
        model: The model's name, path or hub id; empty for vectors of older versions until the model is loaded.
        vectors: Number of vectors.
        bytes: Size of their pages in bytes.
        last_used: Unix time of the last write, or of the first read by a process, in seconds.
    """

    namespace: str
    model: str
    vectors: int
    bytes: int
    last_used: float


def default_path() -> Path:
    """``$XALIGN_STORE``, else ``store`` in the cache directory."""
    return Path(os.environ.get("XALIGN_STORE") or cache_dir() / "store")


def _default_max_bytes() -> int:
    value = os.environ.get("XALIGN_STORE_GB") or "20"
    try:
        size = int(float(value) * _GIB)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ModelError(f"XALIGN_STORE_GB={value} is not a size; give a number of gigabytes, such as 20.")
    return size


class EmbeddingStore:
    """Vectors on disk, keyed by (namespace, prompt, text).

    Args:
        path: The store's directory, which is created if missing.
        max_bytes: Maximum size on disk. A full store drops the vectors of the least recently used encoders. If only the
            current encoder remains, it stops writing and warns once.

    Raises:
        ModelError: The directory cannot be opened as a store, or ``$XALIGN_STORE_GB`` is not a size.

    Examples:
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from xalign_models.store import EmbeddingStore
        >>> keys = [b"first", b"second"]
        >>> with EmbeddingStore(Path("store")) as store:
        ...     store.put("encoder", keys, np.zeros((2, 8)))
        ...     [vector.shape for vector in store.get("encoder", keys)]
        [(8,), (8,)]
    """

    def __init__(self, path: Path | None = None, max_bytes: int | None = None) -> None:
        require_installed(lmdb)
        self.path = path or default_path()
        self.max_bytes = max_bytes or _default_max_bytes()
        self._full: set[str] = set()
        self._databases: dict[str, Any] = {}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            set_aside_if_damaged(self.path)
            self._open()
        except (lmdb.Error, OSError, FileError) as error:
            raise ModelError(
                f"Cannot open the store at {self.path} ({error}); make room, or set XALIGN_STORE to another folder."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        reserve_lock(self.path)
        self._env = lmdb.open(str(self.path), map_size=self.max_bytes, max_dbs=1024, max_readers=1024)
        self._used, self._notes = self._env.open_db(_META), self._env.open_db(_NOTES)

    def close(self) -> None:
        """Close the environment; the object cannot be used afterwards."""
        self._env.close()

    def _database(self, namespace: str, create: bool) -> Any:
        try:
            self._env.begin().abort()
        except lmdb.MapResizedError:  # a process with a higher limit has enlarged the store
            self._env.set_mapsize(0)
        if namespace not in self._databases:
            try:
                self._databases[namespace] = self._env.open_db((_FORM + namespace).encode(), create=create)
            except lmdb.NotFoundError:
                return None
        return self._databases[namespace]

    def items(self, namespace: str) -> Iterator[tuple[bytes, np.ndarray]]:
        """Keys and vectors (d,), float32, of a namespace, without damaged ones.

        Raises:
            ModelError: The store is damaged.
        """
        database = self._database(namespace, create=False)
        if database is None:
            return
        try:
            with self._env.begin(db=database) as transaction:
                for key, value in transaction.cursor():
                    if (vector := unpack(bytes(key), value)) is not None:
                        yield bytes(key), vector
        except lmdb.Error as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> ModelError:
        return ModelError(f"The store at {self.path} is damaged ({error}); run `xalign verify --clean`.")

    def _touch(self, namespace: str) -> None:
        with self._env.begin(write=True, db=self._used) as transaction:
            transaction.put(namespace.encode(), str(time.time()).encode())

    def note(self, namespace: str, text: str) -> str:
        """The first note of a namespace; ``text`` becomes the note if there is none yet."""
        try:
            with self._env.begin(write=True, db=self._notes) as transaction:
                transaction.put(namespace.encode(), text.encode(), overwrite=False)
                return bytes(transaction.get(namespace.encode(), text.encode())).decode()
        except lmdb.Error:  # the store or its disk is full or read-only
            return text

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[np.ndarray | None]:
        """Stored vectors, each (d,), float32 and read-only; None for a missing or damaged one."""
        first = namespace not in self._databases
        try:
            database = self._database(namespace, create=False)
            if database is None:
                return [None] * len(keys)
            if first:
                with suppress(lmdb.Error):  # the store or its disk is full or read-only, which does not prevent reading
                    self._touch(namespace)
            with self._env.begin(db=database) as transaction:
                values = [transaction.get(key) for key in keys]
        except lmdb.Error as error:
            self._stop(namespace, f"is damaged ({error})", "Run `xalign verify --clean`")
            return [None] * len(keys)
        vectors = [None if value is None else unpack(key, value) for key, value in zip(keys, values, strict=True)]
        if len({len(vector) for vector in vectors if vector is not None}) > 1:  # it is unknown which dimension is right
            vectors = [None] * len(keys)
        if bad := sum(value is not None for value in values) - sum(vector is not None for vector in vectors):
            logger.warning("The store at %s: %d damaged vectors of %s are encoded again.", self.path, bad, namespace)
        return vectors

    def put(self, namespace: str, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Write vectors (n, d) in one durable transaction; a full store drops older ones or stops writing."""
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        while namespace not in self._full:
            try:
                if self._write(namespace, keys, rows):
                    return
                if not self._drop_oldest(besides=namespace):
                    full = f"is full ({self.max_bytes / _GIB:.2f} GB)"
                    self._stop(namespace, full, "Raise XALIGN_STORE_GB or run `xalign store clear`")
            except (lmdb.Error, ModelError) as error:
                self._stop(namespace, f"cannot be written ({error})", "Make room on its disk or set XALIGN_STORE")

    def _write(self, namespace: str, keys: Sequence[bytes], rows: np.ndarray) -> bool:
        """Write vectors in one transaction; False if the store is full."""
        try:
            database = self._database(namespace, create=True)
            with self._env.begin(write=True, db=database) as transaction:
                transaction.put(namespace.encode(), str(time.time()).encode(), db=self._used)
                for key, row in zip(keys, rows, strict=True):
                    transaction.put(key, pack(key, row))
        except lmdb.MapFullError:
            return False
        return True

    def _stop(self, namespace: str, reason: str, advice: str) -> None:
        self._full.add(namespace)
        logger.warning("The store at %s %s; new vectors are not stored. %s.", self.path, reason, advice)

    def verify(self, clean: bool = False) -> Iterator[tuple[str, int, int]]:
        """Read every vector and count the damaged ones, which ``clean`` drops.

        If the structure of the store is damaged, so that vectors cannot be reached, ``clean`` sets it aside as a whole.

        Yields:
            Namespace, number of vectors, number of damaged vectors; "all" and twice 1 if LMDB cannot read a page.
        """
        names: list[bytes] = []
        if broken := kills_readers(self.path):
            yield "all", 1, 1
        else:
            with self._env.begin() as transaction:
                names = [bytes(name) for name in transaction.cursor().iternext(values=False)]
        for name in sorted({*names} - {_META, _NOTES}):
            entries, read, bad = 1, 0, list[bytes]()
            try:
                database = self._env.open_db(name, create=False)
                with self._env.begin(db=database) as transaction:
                    entries = transaction.stat(database)["entries"]
                    for key, value in transaction.cursor():
                        read += 1
                        if unpack(key, value) is None:
                            bad.append(bytes(key))
            except lmdb.Error:
                entries = max(entries, read + 1)
            lost = max(0, entries - read)
            broken |= lost > 0
            if clean and bad and not broken:
                with self._env.begin(write=True, db=database) as transaction:
                    for key in bad:
                        transaction.delete(key)
            yield name.decode("utf-8", "replace").removeprefix(_FORM), read + lost, len(bad) + lost
        if clean and broken:
            self._env.close()
            self._databases.clear()
            set_aside(self.path / "data.mdb", f"The store at {self.path} is damaged.")
            self._open()
        elif clean:
            with self._env.begin(write=True, db=self._used) as transaction:
                for name in [bytes(name) for name, value in transaction.cursor() if _time(value) is None]:
                    transaction.delete(name)
                    if _FORM.encode() + name in names:  # its vectors can be cleared by this entry only
                        transaction.put(name, b"0")

    def _drop_oldest(self, besides: str) -> bool:
        """Drop the least recently used encoder's vectors; False if only ``besides`` remains."""
        others = [encoder for encoder in self.stats() if encoder.namespace != besides]
        if not others:
            return False
        oldest = others[-1]
        logger.warning("The store is full: dropping %d vectors of %s.", oldest.vectors, oldest.namespace)
        self.clear(oldest.namespace)
        with suppress(lmdb.MapFullError):  # freed pages can be used two transactions later
            self._touch(besides)
        return True

    def stats(self) -> list[NamespaceStats]:
        """Statistics by encoder, most recently used first."""
        with self._env.begin(db=self._used) as transaction:
            used = {bytes(name).decode("utf-8", "replace"): _time(value) or 0.0 for name, value in transaction.cursor()}
            notes = ((key, transaction.get((NAME + key).encode(), b"", db=self._notes)) for key in used)
            models = {key: bytes(note).decode("utf-8", "replace") for key, note in notes}
        encoders = []
        for namespace, last_used in used.items():
            database = self._database(namespace, create=False)
            with self._env.begin(db=database) as transaction:
                stat = transaction.stat(database) if database else {"entries": 0}
            if not stat["entries"]:
                continue
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            encoders.append(
                NamespaceStats(namespace, models[namespace], stat["entries"], pages * stat["psize"], last_used)
            )
        return sorted(encoders, key=lambda encoder: -encoder.last_used)

    def clear(self, namespace: str | None = None) -> int:
        """Drop the vectors of one encoder, or of all, and return their number.

        Raises:
            ModelError: The store is damaged.
        """
        dropped = 0
        for encoder in self.stats():
            if namespace in {None, encoder.namespace}:
                database = self._database(encoder.namespace, create=False)
                try:
                    with self._env.begin(write=True) as transaction:
                        transaction.drop(database, delete=False)  # emptied: handles in other processes stay valid
                        transaction.delete(encoder.namespace.encode(), db=self._used)
                        for note in (encoder.namespace, NAME + encoder.namespace):
                            transaction.delete(note.encode(), db=self._notes)
                except lmdb.Error as error:
                    raise self._damaged(error) from None
                self._full.clear()
                dropped += encoder.vectors
        return dropped


def _time(value: bytes) -> float | None:
    """The time of last use in an entry of the database of times; None if it is damaged."""
    with suppress(ValueError):
        if 0 <= (seconds := float(bytes(value))) < _NEVER:
            return seconds
    return None


def pack(key: bytes, row: np.ndarray) -> bytes:
    """Encode a vector as a value of the store: float32, then a checksum of key and vector."""
    data = row.tobytes()
    return data + zlib.crc32(data, zlib.crc32(key)).to_bytes(_CHECK, "little")


def unpack(key: bytes, value: bytes) -> np.ndarray | None:
    """Invert :func:`pack`; None if the checksum differs."""
    data = memoryview(value)[:-_CHECK]
    if len(data) % 4 or not data or zlib.crc32(data, zlib.crc32(key)) != int.from_bytes(value[-_CHECK:], "little"):
        return None
    return np.frombuffer(data, dtype=np.float32)


def open_store() -> EmbeddingStore:
    """The store that a process shares, because LMDB may open a directory only once per process."""
    return _open(default_path())


_open = cache(EmbeddingStore)
