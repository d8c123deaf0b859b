"""PostgreSQL with pgvector: the second column is a column of the same table."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from xalign_models.errors import FileError, one_line
from xalign_models.index.base import ROWS, Columns, Index, Rows, matrix, require_unique
from xalign_models.linalg.arrays import Float32

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), coalesce(i.indisprimary, false) FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY(i.indkey)
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class Postgres(Index):
    """A table with a key, by default the primary key, and a column of type ``vector`` or ``halfvec``."""

    def __init__(self, url: str, table: str, columns: Columns) -> None:
        try:
            self.connection = psycopg.connect(url, autocommit=True)
        except psycopg.Error as error:
            raise FileError(f"{table}: the server cannot be reached ({one_line(error)}).") from None
        self.names = {"table": sql.Identifier(*table.split("."))}
        described = self.connection.execute(COLUMNS, [self.names["table"].as_string(self.connection)]).fetchall()
        if not described:
            raise FileError(f"The database has no table {table}.")
        kinds = {name: kind for name, kind, _ in described}
        vectors = [name for name in kinds if kinds[name] in {"vector", "halfvec"}]
        self.column = columns.pick("vector", vectors, table, needed=True)
        self.kind = kinds[self.column]
        primary = [name for name, _, is_primary in described if is_primary]
        self.unique = len(primary) == 1 and not columns.id
        self.key = primary[0] if self.unique else columns.pick("id", kinds, table, needed=True)
        self.sides = columns.sides(kinds, table)
        named = dict(zip(("text", "lang"), self.sides, strict=True))
        named |= {"first": self.column, "second": self.second, "key": self.key}
        self.names |= {name: sql.Identifier(column) for name, column in named.items() if column}

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query, in which ``{table}``, ``{key}`` and so on stand for identifiers."""
        cursor = self.connection.execute(sql.SQL(query).format(**self.names), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def count(self) -> int:
        return int(self._all("SELECT count(*) FROM {table}")[0][0])

    def read(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        if not self.unique:  # other rows with a batch's last key would be skipped
            ((self.unique,),) = self._all("SELECT count(DISTINCT {key}) = count(*) FROM {table}")
            require_unique(self.source, self.key, self.unique)
        texts, langs = (
            f"{{{role}}}::text" if side else "NULL" for role, side in zip(("text", "lang"), self.sides, strict=True)
        )
        fields = f"{{key}}, {{{'second' if second else 'first'}}}::real[], {texts}, {langs}"
        kept = "{first} IS NOT NULL AND {second} IS NULL" if missing else "TRUE"
        last: list[Any] = []
        while True:  # each batch is a separate query, so writing can continue in between
            after = "AND {key} > %s" if last else ""
            query = f"SELECT {fields} FROM {{table}} WHERE {kept} {after} ORDER BY {{key}} LIMIT {ROWS}"
            if not (found := self._all(query, last)):
                return
            ids, vectors, *sides = zip(*found, strict=True)
            last = [ids[-1]]
            listed = (side if name else None for side, name in zip(sides, self.sides, strict=True))
            yield Rows(ids, matrix(vectors), *listed)

    def written(self) -> int | None:
        there = {name for name, _, _ in self._all(COLUMNS, [self.names["table"].as_string(self.connection)])}
        return int(self._all("SELECT count({second}) FROM {table}")[0][0]) if self.second in there else None

    def add(self, dim: int) -> None:
        self._all(f"ALTER TABLE {{table}} ADD COLUMN {{second}} {self.kind}({dim:d})")

    def write(self, ids: Sequence[Any], vectors: Float32) -> None:
        update = sql.SQL("UPDATE {table} SET {second} = %s::real[] WHERE {key} = %s").format(**self.names)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(update, zip(vectors.tolist(), ids, strict=True))

    def drop(self) -> None:
        self._all("ALTER TABLE {table} DROP COLUMN IF EXISTS {second}")

    def close(self) -> None:
        self.connection.close()
