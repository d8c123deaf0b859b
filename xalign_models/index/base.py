"""The interface of a store: rows in batches, and a second column of vectors next to the first."""

from __future__ import annotations

import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, ModelError
from xalign_models.linalg.arrays import AnyFloats, Float32, Mask
from xalign_models.vector_files.parquet import LANGUAGES, NAMES

ROWS = 4096
"""Rows of a batch; a kill loses at most one batch of work."""
SUFFIX = "_xalign"
"""Suffix of a second column's name; no other column is ever dropped."""
USUAL = {
    "vector": NAMES,
    "text": ("text", "content", "document", "chunk", "page_content", "texts"),
    "lang": LANGUAGES,
    "id": ("id", "_id", "uuid", "ids"),
}
STORES = {"lancedb": "lance:Lance", "qdrant": "qdrant:Qdrant", "postgresql": "postgres:Postgres"}
FILES = {".parquet": "files:Parquet", ".npz": "files:Npz", ".faiss": "faiss:Faiss"}


@dataclass(frozen=True)
class Columns:
    """Names of the columns, by default common ones; ``texts`` is a parquet file of a FAISS index's texts, in order."""

    vector: str | None = None
    text: str | None = None
    lang: str | None = None
    id: str | None = None
    texts: Path | None = None

    def pick(self, role: str, names: Iterable[str], source: str, *, needed: bool = False) -> str:
        """A store's column for a role; "" if there is none and it is not needed.

        Raises:
            FileError: The named column, or a needed one, does not exist.
        """
        names, wanted = [name for name in names if not name.endswith(SUFFIX)], getattr(self, role)
        found = [name for name in ((wanted,) if wanted else USUAL[role]) if name in names]
        if role == "vector" and not wanted and len(names) == 1:
            found = names
        if not found and (needed or wanted):
            option = "--column" if role == "vector" else f"--{role}-column"
            raise FileError(
                f"{source}: which column has the role {role}? Name one of {', '.join(names)} with {option}."
            )
        return found[0] if found else ""

    def sides(self, names: Iterable[str], source: str, *more: str) -> list[str]:
        """The columns of texts, of languages, and of more roles."""
        return [self.pick(role, [*names], source) for role in ("text", "lang", *more)]


@dataclass(frozen=True)
class Rows:
    """Rows of a store.

    Attributes:
        ids: Their ids, or their numbers, from 0, in a file.
        vectors: (n, d); NaN for rows without a vector.
        texts: Their texts, or None if the store has none.
        langs: Their languages as the store writes them, or None if it has none.
        keys: The ids that a file has in a column, which may repeat, or None.
    """

    ids: Sequence[Any]
    vectors: AnyFloats
    texts: Sequence[str | None] | None = None
    langs: Sequence[str | None] | None = None
    keys: Sequence[Any] | None = None

    def take(self, places: npt.NDArray[np.integer]) -> Rows:
        """Rows by their positions (m,) in the batch."""
        sides = (side and [side[place] for place in places] for side in (self.texts, self.langs, self.keys))
        return Rows([self.ids[place] for place in places], self.vectors[places], *sides)

    @property
    def names(self) -> Sequence[Any]:
        """Names of the rows for the user (n,): their keys, else their ids."""
        return self.keys or self.ids

    @property
    def usable(self) -> Mask:
        """(n,) whether a vector is finite and not zero; other vectors are never mapped."""
        return np.logical_and(np.isfinite(self.vectors).all(axis=1), self.vectors.any(axis=1))


class Index(ABC):
    """An index in a store. The first column of vectors is only read, never written; ``source`` has no password.

    ``home`` is the source with the full path of a local index, by which a run recognises it.
    """

    source: str
    home: str
    column: str

    @property
    def second(self) -> str:
        """Name of the second column."""
        return f"{self.column or 'vector'}{SUFFIX}"

    @abstractmethod
    def count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def read(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        """Rows in batches, in an order that lasts until the next write.

        Args:
            missing: Leave out the rows that have a vector in the second column.
            second: Read the vectors of the second column.
        """

    def rows(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        """The batches of :meth:`read`, checked to have vectors of one length; missing vectors get that length.

        Raises:
            FileError: A vector is longer or shorter than earlier ones.
        """
        lengths, waiting = set[int](), list[Rows]()
        for rows in self.read(missing=missing, second=second):
            waiting.append(rows)
            lengths |= {rows.vectors.shape[1]} - {0}  # 0 if a batch has no vector
            require_one(lengths)
            while lengths and waiting:
                vectors = (rows := waiting.pop(0)).vectors
                yield rows if vectors.size else replace(rows, vectors=np.full((len(vectors), *lengths), np.nan))
        yield from waiting

    @abstractmethod
    def written(self) -> int | None:
        """Number of rows with a vector in the second column; None if there is no second column."""

    @abstractmethod
    def add(self, dim: int) -> None:
        """Create the second column, empty, for vectors of a dimension."""

    @abstractmethod
    def write(self, ids: Sequence[Any], vectors: Float32) -> None:
        """Write vectors (n, d) of rows into the second column; a kill after the call cannot lose them."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the second column if there is one."""

    def finish(self) -> None:  # noqa: B027  # stores that write in place have nothing to do
        """Complete the second column once all rows are written."""

    def close(self) -> None:  # noqa: B027
        """Release the store."""


def matrix(vectors: Iterable[Any]) -> Float32:
    """Vectors of equal length as (n, d) float32; a missing vector becomes NaN.

    Raises:
        FileError: The vectors differ in length.
    """
    listed = list(vectors)
    lengths = {len(vector) for vector in listed if vector is not None} or {0}
    require_one(lengths)
    empty = [np.nan] * min(lengths)
    return np.array([empty if vector is None else vector for vector in listed], np.float32)


def require_unique(source: str, key: str, unique: bool) -> None:
    """Refuse a column of ids that cannot name rows.

    Raises:
        FileError: A row has no id, or rows share an id.
    """
    if not unique:
        raise FileError(f"{source}: rows share a {key} or lack one; name a column of unique ids with --id-column.")


def require_one(lengths: set[int]) -> None:
    """Refuse vectors of several lengths.

    Raises:
        FileError: There are several lengths.
    """
    if len(lengths) > 1:
        several = " and ".join(map(str, sorted(lengths)))
        raise FileError(f"There are vectors of {several} numbers; an index needs vectors of one dimension.")


def open_index(source: str, columns: Columns | None = None) -> Index:
    """The index of a source: a file such as ``docs.parquet``, or ``STORE:PLACE#TABLE``.

    Raises:
        ModelError: The source has an unknown form, or a named column does not apply to this kind of index.
        FileError: The source is missing or damaged, or lacks a column.
    """
    place, _, table = source.rpartition("#")
    scheme, _, rest = place.partition(":")
    if not (home := STORES.get(scheme) if place else FILES.get(Path(source).suffix)):
        raise ModelError(
            f"{source} is not a readable index; give FILE.parquet, FILE.npz, FILE.faiss, lancedb:DIR#TABLE, "
            "qdrant:PLACE#COLLECTION or postgresql://USER@HOST/DB#TABLE."
        )
    columns = columns or Columns()
    path = Path(rest if place else source)
    if (local := scheme != "postgresql" and "://" not in rest) and not path.exists():
        raise FileError(f"{path} does not exist.")
    flat, ids = home == FILES[".faiss"], home != STORES["qdrant"]
    kinds = {"--texts": (columns.texts, flat), "--column": (columns.vector, not flat), "--id-column": (columns.id, ids)}
    if idle := [name for name, (value, used) in kinds.items() if value and not used]:
        raise ModelError(f"{', '.join(idle)}: no effect on this kind of index; leave it out.")
    kind = pkgutil.resolve_name(f"xalign_models.index.{home}")
    where = (place if scheme == "postgresql" else rest, table) if place else (Path(source),)
    index: Index = kind(*where, columns)
    clean = f"{re.sub(r'(?<=[?&])(ssl)?password=[^&]*', '', place)}#{table}"
    index.source = clean.rpartition("@")[2] if place else source
    index.home = (f"{scheme}:{path.resolve()}#{table}" if place else str(path.resolve())) if local else index.source
    return index
