"""Qdrant: the second column is a named vector of the same collection."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from xalign_models.errors import FileError, one_line
from xalign_models.index.base import Columns, Index, Rows, matrix
from xalign_models.linalg.arrays import Float32

PAGE = 2048
"""Points per request; a point with 384 dimensions is about 8 kB of JSON."""


class Qdrant(Index):
    """A collection, at a server's address or in a directory of the client's local mode; texts are in the payload."""

    def __init__(self, place: str, collection: str, columns: Columns) -> None:
        local = "://" not in place
        if local and not (Path(place) / "meta.json").is_file():  # the client would make a new store here
            raise FileError(f"{place} is not a directory of Qdrant's local mode.")
        try:
            self.client = QdrantClient(path=place) if local else QdrantClient(url=place, check_compatibility=False)
            there = self.client.collection_exists(collection)
        except (ApiException, RuntimeError, OSError, ValueError) as error:
            advice = "close the other program that uses it" if local else "start the server, or correct the address"
            raise FileError(f"{place} cannot be opened; {advice} ({one_line(error)[:200]}).") from None
        self.collection = collection
        if not there:
            self.client.close()
            raise FileError(f"{place} has no Qdrant collection {collection}.")
        self.column = columns.pick("vector", named := self._named(), place, needed=True)
        if named[self.column].multivector_config:
            raise FileError(
                f"{place}: a point of {collection} has several vectors; name a column with one vector with --column."
            )
        points, _ = self.client.scroll(collection, limit=PAGE)
        payloads = [self.client.get_collection(collection).payload_schema, *(point.payload or {} for point in points)]
        self.sides = columns.sides(dict.fromkeys(name for fields in payloads for name in fields), place)

    def _named(self) -> dict[str, Any]:
        """Settings of the vectors by name; an unnamed one has the name ""."""
        vectors = self.client.get_collection(self.collection).config.params.vectors
        return dict(vectors) if isinstance(vectors, dict) else {"": vectors} if vectors else {}

    def _filter(self, kind: str) -> Any:
        return models.Filter.model_validate({kind: [models.HasVectorCondition(has_vector=self.second)]})

    def count(self) -> int:
        return int(self.client.count(self.collection).count)

    def read(self, *, missing: bool = False, second: bool = False) -> Iterator[Rows]:
        column = self.second if second else self.column
        chosen = self._filter("must_not") if missing else None
        offset: Any = None
        while True:
            points, offset = self.client.scroll(
                self.collection, chosen, PAGE, offset=offset, with_payload=[side for side in self.sides if side],
                with_vectors=[column] if column else True,
            )  # fmt: skip
            if points:
                sides = [[(point.payload or {}).get(side) for point in points] if side else None for side in self.sides]
                vectors = (v.get(column) if isinstance(v := point.vector, dict) else v for point in points)
                yield Rows([point.id for point in points], matrix(vectors), *sides)
            if offset is None:
                return

    def written(self) -> int | None:
        there = self.second in self._named()
        return int(self.client.count(self.collection, self._filter("must")).count) if there else None

    def add(self, dim: int) -> None:
        first = self._named()[self.column]
        kind = None if first.datatype == models.Datatype.UINT8 else first.datatype  # unit vectors as integers are zero
        config = models.DenseVectorConfig(size=dim, distance=first.distance, datatype=kind)
        self.client.create_vector_name(self.collection, self.second, models.DenseVectorNameConfig(dense=config))

    def write(self, ids: Sequence[Any], vectors: Float32) -> None:
        rows = zip(ids, vectors.tolist(), strict=True)
        points = [models.PointVectors(id=key, vector={self.second: vector}) for key, vector in rows]
        self.client.update_vectors(self.collection, points)

    def drop(self) -> None:
        if self.second in self._named():
            self.client.delete_vector_name(self.collection, self.second)

    def close(self) -> None:
        self.client.close()
