"""LanceDB: the second column is a column of the same table."""

from collections.abc import Iterator, Sequence
from typing import Any

import lancedb
import pyarrow as pa

from xalign_models.errors import FileError, one_line
from xalign_models.index.base import ROWS, Columns, Index, Rows, matrix, require_unique
from xalign_models.linalg.arrays import Float32
from xalign_models.vector_files.parquet import column_of, values_of


class Lance(Index):
    """A table with a column of unique ids and a column of vectors of fixed size."""

    def __init__(self, directory: str, table: str, columns: Columns) -> None:
        try:
            self.table = lancedb.connect(directory).open_table(table)
        except (ValueError, OSError, RuntimeError) as error:
            raise FileError(f"{directory} has no LanceDB table {table} ({one_line(error)[:100]}).") from None
        schema = self.table.schema
        vectors = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        self.column = columns.pick("vector", vectors, table, needed=True)
        self.key = columns.pick("id", schema.names, table, needed=True)
        kind = schema.field(self.column).type.value_type
        self.kind = kind if pa.types.is_floating(kind) else pa.float32()  # unit vectors as integers are zero
        self.sides = columns.sides(schema.names, table)

    def count(self) -> int:
        return int(self.table.count_rows())

    def read(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        column = self.second if second else self.column
        query = self.table.search().select([name for name in (self.key, column, *self.sides) if name])
        if missing:
            query = query.where(f"`{self.column}` IS NOT NULL AND `{self.second}` IS NULL")
        for batch in query.to_batches(batch_size=ROWS):
            if len(batch):
                sides = [values_of(batch.column(name)) if name else None for name in self.sides]
                ids = batch.column(self.key).to_pylist()
                yield Rows(ids, matrix(batch.column(column).to_numpy(zero_copy_only=False)), *sides)

    def written(self) -> int | None:
        there = self.second in self.table.schema.names
        return int(self.table.count_rows(f"`{self.second}` IS NOT NULL")) if there else None

    def add(self, dim: int) -> None:
        ids = self.table.search().select([self.key]).to_arrow().column(self.key)
        require_unique(self.source, self.key, not ids.null_count and len(ids.unique()) == len(ids))
        self.table.add_columns(pa.schema([pa.field(self.second, pa.list_(self.kind, dim))]))

    def write(self, ids: Sequence[Any], vectors: Float32) -> None:
        schema = self.table.schema
        column = column_of(vectors.astype(self.kind.to_pandas_dtype()), schema.field(self.second).type)
        rows = pa.table({self.key: pa.array(ids, schema.field(self.key).type), self.second: column})
        self.table.merge_insert(self.key).when_matched_update_all().execute(rows)

    def drop(self) -> None:
        if self.second in self.table.schema.names:
            self.table.drop_columns([self.second])
