"""FAISS: the second column is a second, flat index in a file next to the first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from xalign_models.errors import FileError, one_line, plural
from xalign_models.files import read_parquet
from xalign_models.index.base import ROWS, Columns, Rows
from xalign_models.index.files import Staged
from xalign_models.linalg.arrays import Float32
from xalign_models.vector_files.parquet import values_of


class Faiss(Staged):
    """An index written by FAISS that can reconstruct its vectors: flat, HNSW or IVF."""

    def __init__(self, path: Path, columns: Columns) -> None:
        super().__init__(path, "vector")
        read: Any = faiss.read_index
        try:
            self.index = read(str(path))
        except RuntimeError as error:
            raise FileError(f"{path} is not a FAISS index ({one_line(error)[-100:]}).") from None
        self.inner = faiss.downcast_index(self.index.index) if hasattr(self.index, "id_map") else self.index
        self.ids = faiss.vector_to_array(self.index.id_map).tolist() if self.inner is not self.index else []
        try:
            if hasattr(self.inner, "make_direct_map"):
                self.inner.make_direct_map()
            self.inner.reconstruct_n(0, min(1, self.count()))
        except RuntimeError:  # an IVF index with its own ids, for instance
            raise FileError(f"{path}: FAISS cannot read its rows; save its vectors in a flat index.") from None
        self.table: Any = read_parquet(columns.texts) if columns.texts else None
        if self.table is not None and len(self.table) != self.count():
            raise FileError(f"{columns.texts} has {plural(len(self.table), 'row')}, and {path} has {self.count()}.")
        self.sides = columns.sides(self.table.column_names if self.table is not None else (), str(columns.texts), "id")

    def count(self) -> int:
        return int(self.index.ntotal)

    def _rows(self) -> Iterator[Rows]:
        for start in range(0, self.count(), ROWS):
            size = min(ROWS, self.count() - start)
            sides = [values_of(self.table.column(name).slice(start, size)) if name else None for name in self.sides]
            sides[-1] = sides[-1] or (self.ids[start : start + size] if self.ids else None)
            yield Rows(range(start, start + size), self.inner.reconstruct_n(start, size), *sides)

    def _save(self, path: Path, vectors: Float32) -> None:
        flat: Any = faiss.IndexFlat(vectors.shape[1], self.index.metric_type)
        if hasattr(self.index, "id_map"):
            flat = faiss.IndexIDMap(flat)
            flat.add_with_ids(np.array(vectors), faiss.vector_to_array(self.index.id_map))
        else:
            flat.add(np.array(vectors))
        faiss.write_index(flat, str(path))
