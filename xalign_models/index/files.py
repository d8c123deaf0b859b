"""Files: the second column is a second file next to the first, written in rows that a kill cannot lose."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xalign_models.errors import FileError
from xalign_models.files import read_json, read_npz
from xalign_models.index.base import ROWS, SUFFIX, Columns, Index, Rows, matrix
from xalign_models.linalg.arrays import Float32
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.vector_files.parquet import batches, column_of, open_parquet, values_of, vector_column, writer


class Staged(Index):
    """An index in a file. Rows go to a memory map with a count of finished rows; :meth:`finish` writes the file.

    Rows without a usable vector stay zero in the second file, so both files have the same rows.
    """

    def __init__(self, path: Path, column: str) -> None:
        self.path, self.column, self.source_state = path, column, _state(path)
        self.output = path.with_name(f"{path.stem}{SUFFIX}{path.suffix}")
        self.stage, self.state = (path.with_name(f".{path.name}{SUFFIX}.{ending}") for ending in ("npy", "json"))

    @property
    def second(self) -> str:
        return self.output.name

    def read(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        if second and not self.stage.exists():  # finished
            yield from type(self)(self.output, Columns(vector=self.column)).read()  # type: ignore[arg-type]
            return
        if missing and self.state.exists() and read_json(self.state).get("of") != self.source_state:
            raise FileError(f"{self.path} has changed since the earlier run; undo that run and start again.")
        start = (self.written() or 0) if missing else 0
        for rows in self._rows():
            if rows.ids[-1] >= start:
                here = rows.take(np.arange(max(0, start - rows.ids[0]), len(rows.ids)))
                vectors = np.lib.format.open_memmap(self.stage, "r")[here.ids] if second else here.vectors
                yield replace(here, vectors=vectors)

    @abstractmethod
    def _rows(self) -> Iterator[Rows]:
        """All rows, with their numbers as ids."""

    def written(self) -> int | None:
        if self.output.exists():
            return self.count()
        return int(read_json(self.state)["done"]) if self.state.exists() and self.stage.exists() else None

    def add(self, dim: int) -> None:
        self.state.unlink(missing_ok=True)  # from an earlier second file
        np.lib.format.open_memmap(self.stage, "w+", np.float32, (self.count(), dim)).flush()
        self._record(0)

    def write(self, ids: Sequence[Any], vectors: Float32) -> None:
        block = np.zeros((ids[-1] - ids[0] + 1, vectors.shape[1]), np.float32)
        block[np.asarray(ids) - ids[0]] = vectors
        with self.stage.open("r+b") as file:  # not through the map: on a full disk, the process would die of SIGBUS
            file.seek(np.lib.format.open_memmap(self.stage, "r").offset + ids[0] * block[0].nbytes)
            file.write(block.data)
        self._record(int(ids[-1]) + 1)

    def finish(self) -> None:
        if not self.output.exists():
            with atomic_file(self.output) as temporary:
                self._save(temporary, np.lib.format.open_memmap(self.stage, "r"))
        self._record(self.count(), made=_state(self.output))  # by which :meth:`drop` recognises the second file
        self.stage.unlink(missing_ok=True)

    def _record(self, done: int, **more: Any) -> None:
        atomic_write_text(self.state, json.dumps({"done": done, "of": self.source_state, **more}))

    def _has_written(self) -> bool:
        """Whether this class wrote the existing second file."""
        return self.stage.exists() or (self.state.exists() and read_json(self.state).get("made") == _state(self.output))

    @abstractmethod
    def _save(self, path: Path, vectors: Float32) -> None:
        """Write the second file."""

    def drop(self) -> None:
        if self.output.exists() and not self._has_written():
            raise FileError(
                f"{self.output} was not written by `xalign index`, or has changed since: remove it yourself."
            )
        for path in (self.output, self.state, self.stage):
            path.unlink(missing_ok=True)


class Parquet(Staged):
    """A parquet file; the second file keeps its other columns."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self.schema = open_parquet(path).schema_arrow
        super().__init__(path, vector_column(self.schema, path, columns.vector))
        self.sides = columns.sides(self.schema.names, str(path), "id")

    def count(self) -> int:
        return int(open_parquet(self.path).metadata.num_rows)

    def _rows(self) -> Iterator[Rows]:
        first = 0
        for batch in batches(self.path, self.column, [self.column, *filter(None, self.sides)]):
            sides = [values_of(batch.column(name)) if name else None for name in self.sides]
            vectors = matrix(batch.column(self.column).to_numpy(zero_copy_only=False))
            yield Rows(range(first, first := first + len(batch)), vectors, *sides)

    def _save(self, path: Path, vectors: Float32) -> None:
        place, first = self.schema.get_field_index(self.column), 0
        field = pa.field(self.column, pa.list_(pa.float32(), vectors.shape[1]))
        with writer(path, self.schema.set(place, field), self.column) as out:
            for batch in batches(self.path, self.column):
                column = column_of(vectors[first : (first := first + len(batch))], field.type)
                out.write_batch(batch.set_column(place, field, column))


class Npz(Staged):
    """An npz file of vectors, with optional arrays of texts and languages."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self.arrays = read_npz(path)
        matrices = [name for name, array in self.arrays.items() if array.ndim == 2 and array.dtype.kind in "fiu"]
        super().__init__(path, columns.pick("vector", matrices, str(path), needed=True))
        self.sides = columns.sides(self.arrays, str(path), "id")
        if wrong := [name for name in self.sides if name and self.arrays[name].shape != (self.count(),)]:
            raise FileError(f"{path}: the array {wrong[0]} must have one value for each of {self.count()} vectors.")

    def count(self) -> int:
        return len(self.arrays[self.column])

    def _rows(self) -> Iterator[Rows]:
        for start in range(0, self.count(), ROWS):
            part = slice(start, start + ROWS)
            sides = [_listed(self.arrays[name][part]) if name else None for name in self.sides]
            with np.errstate(over="ignore"):  # such a row counts as not finite
                vectors = self.arrays[self.column][part].astype(np.float32)
            yield Rows(range(start, start + len(vectors)), vectors, *sides)

    def _save(self, path: Path, vectors: Float32) -> None:
        with ZipFile(path, "w") as archive:  # np.savez refuses an array named like one of its parameters
            for name, array in {**self.arrays, self.column: vectors}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)


def _state(path: Path) -> list[int]:
    """Size and time of a file."""
    state = path.stat()
    return [state.st_size, state.st_mtime_ns]


def _listed(array: npt.NDArray[Any]) -> list[Any]:
    """The values of an array, bytes as texts."""
    return list((np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array).tolist())
