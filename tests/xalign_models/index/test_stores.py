"""Every store gives back its rows, and takes a second column that no kill can break and one call removes."""

from __future__ import annotations

import errno
import signal
import subprocess
from collections import deque
from contextlib import closing, suppress
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.xalign_models.index import conftest
from tests.xalign_models.index.conftest import DIM, rows
from xalign_models.errors import FileError, LanguageError, ModelError
from xalign_models.files import read_npz
from xalign_models.index.auditing import gather
from xalign_models.index.base import Columns, open_index
from xalign_models.index.filling import fill, languages_of
from xalign_models.ranking.ranks import normalise

COUNT = 50
ROTATION = np.linalg.qr(np.random.default_rng(5).standard_normal((DIM, DIM)))[0].astype(np.float32)


def rotated(part):
    """A convert function that has an independent formula."""
    return part.vectors @ ROTATION


@pytest.fixture(autouse=True)
def small(monkeypatch):
    sizes = {"base": "ROWS", "files": "ROWS", "faiss": "ROWS", "lance": "ROWS", "postgres": "ROWS", "qdrant": "PAGE"}
    for module, size in sizes.items():
        with suppress(ImportError):  # the store's package is not installed
            monkeypatch.setattr(f"xalign_models.index.{module}.{size}", 7)
    monkeypatch.setattr("xalign_models.vector_files.parquet.BATCH_BYTES", 7 * 4 * DIM)


def content(index, **which):
    parts = list(index.read(**which))
    return [key for part in parts for key in part.ids], np.concatenate([part.vectors for part in parts])


@pytest.mark.slow
def test_all_rows_are_read_once_with_text_and_language(stored):
    data = rows(COUNT)
    source, columns = stored(data)
    with closing(open_index(source, columns)) as index:
        assert index.count() == COUNT
        assert index.written() is None
        parts = list(index.read())
    assert len(parts) > 1
    texts = [text for part in parts for text in part.texts]
    order = [data.texts.index(text) for text in texts]
    assert sorted(order) == list(range(COUNT))
    assert [code for part in parts for code in part.langs] == [data.langs[place] for place in order]
    np.testing.assert_allclose(np.concatenate([part.vectors for part in parts]), data.vectors[order], atol=1e-6)


@pytest.mark.slow
def test_the_second_column_is_filled_and_removed_and_the_first_keeps_its_bits(stored):
    source, columns = stored(rows(COUNT))
    with closing(open_index(source, columns)) as index:
        ids, before = content(index)
        assert fill(index, rotated) == (COUNT, 0)
        assert index.written() == COUNT
        again, after = content(index)
        assert again == ids
        assert after.tobytes() == before.tobytes()
        keys, second = content(index, second=True)
        assert keys == ids
        np.testing.assert_allclose(second, before @ ROTATION, atol=1e-5)
        assert fill(index, rotated) == (COUNT, 0)  # nothing is left to do
        index.drop()
        assert index.written() is None
        index.drop()
    with closing(open_index(source, columns)) as index:
        assert content(index)[1].tobytes() == before.tobytes()
        assert index.written() is None


@pytest.mark.parametrize("name", ["parquet", "npz", "faiss"])
def test_undo_removes_no_file_but_its_own(tmp_path, request, name):
    """The user may have written a file of that name, with `xalign apply` for example."""
    source, columns = getattr(conftest, f"put_{name}")(rows(COUNT), tmp_path, request)
    with closing(open_index(source, columns)) as index:
        index.output.write_bytes(index.path.read_bytes())
        with pytest.raises(FileError, match=r"was not written by `xalign index`.*remove it yourself"):
            index.drop()
        index.output.unlink()
        fill(index, rotated)
        index.output.unlink()
        assert index.written() is None  # its record is not another file's
        index.drop()
        assert not index.state.exists()
        fill(index, rotated)
        index.output.unlink()
        assert fill(index, rotated) == (COUNT, 0)
        index.drop()
        assert sorted(path.name for path in tmp_path.iterdir() if "xalign" in path.name) == []


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_finished_file_whose_batches_have_other_lengths_is_recognised(tmp_path, kind):
    data = rows(COUNT)
    vectors = pa.array(data.vectors.astype(float).tolist(), pa.list_(kind))
    pq.write_table(pa.table({"lang": data.langs, "vector": vectors}), tmp_path / "docs.parquet", row_group_size=20)
    with closing(open_index(str(tmp_path / "docs.parquet"))) as index:
        assert fill(index, rotated) == (COUNT, 0)
        assert fill(index, rotated) == (COUNT, 0)
        shorter = pq.read_table(index.output).slice(0, COUNT - 1)
        pq.write_table(shorter, index.output)
        with pytest.raises(FileError, match="differs from the expected vectors"):
            fill(index, rotated)


def test_batches_that_a_cluster_reads_ahead_are_written_in_order(stored):
    source, columns = stored(rows(COUNT))

    def ahead(function, common, items):
        waiting = deque()
        for item in items:
            waiting.append(function(common, item))
            if len(waiting) > 3:
                yield waiting.popleft()
        yield from waiting

    with closing(open_index(source, columns)) as index:
        ids, before = content(index)
        assert fill(index, rotated, ahead) == (COUNT, 0)
        keys, second = content(index, second=True)
        assert keys == ids
        np.testing.assert_allclose(second, before @ ROTATION, atol=1e-5)


def test_an_interrupted_run_resumes_where_it_stopped(stored):
    source, columns = stored(rows(COUNT))
    seen = []

    def interrupted(part):
        if len(seen) > 15:
            raise KeyboardInterrupt
        seen.extend(part.ids)
        return rotated(part)

    with closing(open_index(source, columns)) as index:
        with pytest.raises(KeyboardInterrupt):
            fill(index, interrupted)
        assert 0 < index.written() == len(seen) < COUNT
    rest = []
    with closing(open_index(source, columns)) as index:
        ids, before = content(index)

        def resumed(part):
            rest.extend(part.ids)
            return rotated(part)

        assert fill(index, resumed) == (COUNT, 0)
        keys, second = content(index, second=True)
    order = [keys.index(key) for key in ids]  # LanceDB appends rows that it rewrites
    np.testing.assert_allclose(second[order], before @ ROTATION, atol=1e-5)
    assert {*rest[: COUNT - len(seen)]} == {*ids} - {*seen}  # the rows of the check come after those


def test_vectors_of_other_maps_in_the_second_column_are_found(stored):
    source, columns = stored(rows(COUNT))
    with closing(open_index(source, columns)) as index:
        index.add(DIM)
        ids, vectors = content(index)
        index.write(ids[:COUNT], vectors[:, ::-1].copy())
        with pytest.raises(FileError, match="differs from the expected vectors"):
            fill(index, rotated)


def test_rows_without_a_usable_vector_are_left_out(tmp_path, request):
    from tests.xalign_models.index.conftest import put_parquet

    data = rows(COUNT)
    data.vectors[[3, 9]] = 0
    data.vectors[20] = np.nan
    source, columns = put_parquet(data, tmp_path, request)
    with closing(open_index(source, columns)) as index:
        assert fill(index, rotated) == (COUNT, 3)
        second = content(index, second=True)[1]
    assert np.flatnonzero(~second.any(axis=1)).tolist() == [3, 9, 20]


@pytest.mark.parametrize("name", ["parquet", "postgres"])
@pytest.mark.parametrize("place", [0, 21, 43])
def test_batches_without_any_vector_are_read_and_left_out(name, place, tmp_path, request):
    data = rows(COUNT)
    source, columns = getattr(conftest, f"put_{name}")(data, tmp_path, request)
    gone = range(place, min(place + 21, COUNT))
    if name == "postgres":
        import psycopg

        with psycopg.connect(source.partition("#")[0]) as connection:
            connection.execute("UPDATE docs SET embedding = NULL WHERE key = ANY(%s)", [[*gone]])
    else:
        vectors = pa.array([None if row in gone else vector for row, vector in enumerate(data.vectors)])
        table = data.table.set_column(3, "vector", vectors)
        pq.write_table(table, source, row_group_size=7)
    with closing(open_index(source, columns)) as index:
        facts = gather(index).facts
        assert (facts["rows"], facts["without a vector"], facts["zero"]) == (COUNT, len(gone), 0)
        assert facts["dimension"] == DIM
        assert fill(index, rotated) == (COUNT, len(gone))
        index.drop()


def test_vectors_that_are_missing_at_first_do_not_make_a_batch_of_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("xalign_models.vector_files.parquet.BATCH_ROWS", 100)
    vectors = pa.array([None] * 16 + [*np.ones((1000, DIM), np.float32)])
    pq.write_table(pa.table({"lang": ["de"] * 1016, "vector": vectors}), tmp_path / "docs.parquet")
    with closing(open_index(str(tmp_path / "docs.parquet"))) as index:
        assert max(len(part.ids) for part in index.rows()) <= 100


@pytest.mark.parametrize("count", [30, 70])
def test_a_file_that_changed_after_a_kill_is_refused_until_undone(tmp_path, request, count):
    def opened(many):
        return closing(open_index(*conftest.put_parquet(rows(many), tmp_path, request)))

    with opened(COUNT) as index:
        index.add(DIM)
        index.write(range(20), np.ones((20, DIM), np.float32))
    with opened(count) as index:
        with pytest.raises(FileError, match="undo"):
            fill(index, rotated)
        index.drop()
        assert fill(index, rotated) == (count, 0)


def test_a_file_that_changed_after_a_run_is_refused_until_undone(tmp_path, request):
    """A sample would miss that a few rows have new vectors."""
    data = rows(COUNT)
    source, columns = conftest.put_parquet(data, tmp_path, request)
    with closing(open_index(source, columns)) as index:
        fill(index, rotated)
    data.vectors[5] = -data.vectors[5]
    conftest.put_parquet(data, tmp_path, request)
    with closing(open_index(source, columns)) as index:
        assert gather(index).facts["rows"] == COUNT
        with pytest.raises(FileError, match="has changed since the earlier run; undo"):
            fill(index, rotated)
        index.drop()
        assert fill(index, rotated) == (COUNT, 0)
        np.testing.assert_allclose(content(index, second=True)[1], data.vectors @ ROTATION, atol=1e-5)


def test_an_unknown_source_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is not a readable index"):
        open_index("elastic:host#docs")
    with pytest.raises(FileError, match="does not exist"):
        open_index(str(tmp_path / "none.parquet"))


def test_a_column_that_such_an_index_lacks_is_refused(stored, tmp_path):
    source, _ = stored(rows(COUNT))
    idle = {"--column": Columns(vector="a")} if source.endswith("faiss") else {"--texts": Columns(texts=tmp_path)}
    if source.startswith("qdrant"):
        idle["--id-column"] = Columns(id="a")
    for option, columns in idle.items():
        with pytest.raises(ModelError, match=f"{option}: no effect"):
            open_index(source, columns)


@pytest.mark.parametrize("store", ["lancedb", "qdrant"])
def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path, store):
    pytest.importorskip({"qdrant": "qdrant_client"}.get(store, store))
    (tmp_path / "notes").mkdir()
    for name in ("none", "notes"):
        with pytest.raises(FileError):
            open_index(f"{store}:{tmp_path / name}#docs")
    assert [path.name for path in tmp_path.rglob("*")] == ["notes"]


def test_a_column_that_does_not_exist_is_named(stored):
    source, columns = stored(rows(COUNT))
    with pytest.raises(FileError, match="--lang-column"):
        open_index(source, Columns(lang="speech", texts=columns.texts))


def test_an_array_that_is_shorter_than_the_vectors_is_refused(tmp_path):
    np.savez(tmp_path / "docs.npz", vectors=np.ones((5, DIM)), lang=np.array(["de"] * 4))
    with pytest.raises(FileError, match="the array lang must have one value for each of 5 vectors"):
        open_index(str(tmp_path / "docs.npz"))


def test_a_language_that_is_a_number_is_refused(tmp_path):
    np.savez(tmp_path / "docs.npz", vectors=np.ones((5, DIM)), lang=np.arange(5))
    with closing(open_index(str(tmp_path / "docs.npz"))) as index, pytest.raises(LanguageError):
        languages_of(next(index.rows()), "de")


def test_arrays_of_any_name_and_bytes_as_languages_are_kept(tmp_path):
    data, more = rows(COUNT), {"file": np.arange(COUNT), "allow_pickle": np.array(["no"] * COUNT)}
    arrays = {"names": np.array([["a", "b"]] * COUNT), "lang": np.array(data.langs, "S"), **more}
    with ZipFile(tmp_path / "docs.npz", "w") as archive:
        for name, array in {**arrays, "vector": data.vectors}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    with closing(open_index(str(tmp_path / "docs.npz"))) as index:
        assert [code for part in index.rows() for code in part.langs] == data.langs
        assert fill(index, rotated) == (COUNT, 0)
        written = read_npz(index.output)
    np.testing.assert_allclose(written.pop("vector"), data.vectors @ ROTATION, atol=1e-5)
    assert {name: array.tolist() for name, array in written.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_as_texts_and_languages_are_read_as_texts(tmp_path, kind):
    """Some writers of parquet leave texts without a type; the text of their repr would look like another model's."""
    data = rows(COUNT)
    table = data.table
    for place, name in ((1, "text"), (2, "lang")):
        table = table.set_column(place, name, table.column(name).cast(kind))
    table = table.set_column(0, "id", pa.array([b"\xff%d" % row for row in range(COUNT)], kind))
    pq.write_table(table, tmp_path / "docs.parquet")
    sample = gather(open_index(str(tmp_path / "docs.parquet")))
    assert (sample.rows.texts, sample.rows.ids[7]) == (data.texts, b"\xff7")
    assert {*sample.codes} == {"deu-Latn", "eng-Latn", "fra-Latn"}


@pytest.mark.parametrize("name", ["parquet", "npz"])
def test_a_disk_that_is_full_ends_in_an_error(tmp_path, request, name, monkeypatch):
    """A map into a file whose pages the disk cannot hold would end the process with SIGBUS."""

    def full(path, mode="r", *others, **more):
        if mode == "r+b":
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(path, mode, *others, **more)

    source, columns = getattr(conftest, f"put_{name}")(rows(COUNT), tmp_path, request)
    plain = Path.open
    with closing(open_index(source, columns)) as index:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", full)
            with pytest.raises(OSError, match="No space left"):
                fill(index, rotated)
        assert fill(index, rotated) == (COUNT, 0)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.float16(), pa.float64()])
def test_a_second_column_beside_integers_holds_floats(tmp_path, kind):
    lancedb = pytest.importorskip("lancedb")
    data = rows(COUNT)
    whole = (40 * data.vectors).astype(kind.to_pandas_dtype())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(whole.ravel(), kind), DIM)
    lancedb.connect(tmp_path).create_table("docs", data.table.set_column(3, "vector", vectors))
    with closing(open_index(f"lancedb:{tmp_path}#docs")) as index:
        assert fill(index, lambda part: normalise(rotated(part))) == (COUNT, 0)
        floats = kind if pa.types.is_floating(kind) else pa.float32()
        assert index.table.schema.field(index.second).type.value_type == floats


def test_a_second_vector_beside_bytes_holds_floats(tmp_path, monkeypatch):
    client_of = pytest.importorskip("qdrant_client")
    client = client_of.QdrantClient(path=str(tmp_path / "qdrant"))
    params = {"size": DIM, "distance": client_of.models.Distance.DOT}
    kinds = {"bytes": client_of.models.Datatype.UINT8, "half": client_of.models.Datatype.FLOAT16}
    named = {name: client_of.models.VectorParams(**params, datatype=kind) for name, kind in kinds.items()}
    client.create_collection("docs", vectors_config=named)
    client.close()
    asked = []
    for name, kind in (("bytes", None), ("half", kinds["half"])):
        with closing(open_index(f"qdrant:{tmp_path / 'qdrant'}#docs", Columns(vector=name))) as index:
            monkeypatch.setattr(index.client, "create_vector_name", lambda *made: asked.append(made))
            index.add(DIM)
            assert asked[-1][2].dense.datatype == kind


def test_texts_and_languages_of_any_type_of_a_database_are_read_as_texts(request):
    url = request.getfixturevalue("server")
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS typed")
        connection.execute("DROP TYPE IF EXISTS spoken")
        connection.execute("CREATE TYPE spoken AS ENUM ('de', 'en')")
        connection.execute("CREATE TABLE typed (id int PRIMARY KEY, text char(9), lang spoken, embedding vector(2))")
        connection.execute("INSERT INTO typed VALUES (1, 'a', 'de', '[1,2]'), (2, 'b', NULL, '[2,1]')")
    with closing(open_index(f"{url}#typed")) as index:
        found = next(index.rows())
    assert (found.texts, found.langs) == (("a", "b"), ("de", None))


@pytest.mark.parametrize("kind", ["str", "complex64", "bool"])
def test_arrays_that_are_no_numbers_are_no_vectors(tmp_path, kind):
    np.savez(tmp_path / "docs.npz", vector=np.ones((5, DIM)).astype(kind))
    with pytest.raises(FileError, match="role vector"):
        open_index(str(tmp_path / "docs.npz"))


def test_doubles_that_no_float_holds_are_no_usable_vectors(tmp_path):
    np.savez(tmp_path / "docs.npz", vector=np.ones((3, DIM)) * [[1], [1e200], [1e-200]])
    with closing(open_index(str(tmp_path / "docs.npz"))) as index:
        assert next(index.rows()).usable.tolist() == [True, False, False]


def test_an_index_that_faiss_cannot_read_row_by_row_is_refused_in_one_line(tmp_path):
    faiss = pytest.importorskip("faiss")
    vectors = rows(400).vectors
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(400) * 7 + 1000)
    faiss.write_index(index, str(tmp_path / "docs.faiss"))
    with pytest.raises(FileError, match="save its vectors in a flat index"):
        open_index(str(tmp_path / "docs.faiss"))
    faiss.write_index(faiss.IndexFlatIP(DIM), str(tmp_path / "docs.faiss"))
    assert open_index(str(tmp_path / "docs.faiss")).count() == 0


def test_a_qdrant_that_cannot_be_opened_is_refused_in_one_line(tmp_path, request):
    from tests.xalign_models.index.conftest import put_qdrant

    source, columns = put_qdrant(rows(COUNT), tmp_path, request)
    with closing(open_index(source, columns)), pytest.raises(FileError, match="close the other program"):
        open_index(source, columns)
    with pytest.raises(FileError, match="start the server"):
        open_index("qdrant:http://127.0.0.1:1#docs")


def test_a_point_of_several_vectors_is_refused(tmp_path):
    models = pytest.importorskip("qdrant_client").models
    client = pytest.importorskip("qdrant_client").QdrantClient(path=str(tmp_path / "qdrant"))
    many = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    params = models.VectorParams(size=DIM, distance=models.Distance.COSINE, multivector_config=many)
    client.create_collection("docs", vectors_config=params)
    client.close()
    with pytest.raises(FileError, match="several vectors"):
        open_index(f"qdrant:{tmp_path / 'qdrant'}#docs")


def test_the_columns_of_qdrant_are_those_of_any_point(tmp_path):
    client_of = pytest.importorskip("qdrant_client")
    client = client_of.QdrantClient(path=str(tmp_path / "qdrant"))
    params = client_of.models.VectorParams(size=DIM, distance=client_of.models.Distance.COSINE)
    client.create_collection("docs", vectors_config=params)
    payload = [{}, {"lang": "de"}, {"text": "a"}]
    client.upload_collection("docs", vectors=rows(3).vectors, ids=[0, 1, 2], payload=payload)
    client.close()
    with closing(open_index(f"qdrant:{tmp_path / 'qdrant'}#docs")) as index:
        found = next(index.rows())
    assert (found.langs, found.texts) == ([None, "de", None], [None, None, "a"])


@pytest.mark.parametrize("ids", [[1, 2, 2], [1, 2, None]])
def test_a_table_without_unique_ids_gets_no_second_column(request, ids):
    url = request.getfixturevalue("server")
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute("CREATE TABLE bare (id int, embedding vector(2))")
        for key in ids:
            connection.execute("INSERT INTO bare VALUES (%s, '[1,2]')", [key])
    with closing(open_index(f"{url}#bare")) as index:
        with pytest.raises(FileError, match="--id-column"):
            next(index.rows())
        with pytest.raises(FileError, match="--id-column"):
            fill(index, lambda part: part.vectors)
        assert index.written() is None


def test_the_source_of_a_file_is_its_whole_path(tmp_path, request):
    from tests.xalign_models.index.conftest import put_parquet

    (folder := tmp_path / "a@b").mkdir()
    source, columns = put_parquet(rows(COUNT), folder, request)
    with closing(open_index(source, columns)) as index:
        assert index.source == source


def test_a_source_holds_no_password(tmp_path, request):
    from tests.xalign_models.index.conftest import put_postgres

    source, _ = put_postgres(rows(5), tmp_path, request)
    with closing(open_index(source.replace("postgres:@", "postgres:secret@"))) as index:
        assert "secret" not in index.source
    hidden = source.replace("#docs", "&password=secret&sslpassword=secret&application_name=x#docs")
    with closing(open_index(hidden)) as index:
        assert "secret" not in index.source + index.home
        assert index.source.endswith("application_name=x#docs")
    with pytest.raises(FileError) as raised:
        open_index("postgresql://me:secret@127.0.0.1:1/db#docs")
    assert "secret" not in str(raised.value)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from xalign_models.index.base import Columns, open_index
from xalign_models.index.filling import fill

import xalign_models.vector_files.parquet as parquet

source, rotation, texts = sys.argv[1:]
index = open_index(source, Columns(texts=Path(texts) if texts else None))
module = sys.modules[type(index).__module__]
module.ROWS = module.PAGE = 7
parquet.BATCH_BYTES = 224
seen = []

def convert(rows):
    seen.append(rows)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows.vectors @ np.load(rotation)

fill(index, convert)
"""


@pytest.mark.slow
def test_a_killed_process_loses_and_doubles_no_row(stored, tmp_path, python):
    source, columns = stored(rows(COUNT))
    np.save(tmp_path / "rotation.npy", ROTATION)
    arguments = [source, str(tmp_path / "rotation.npy"), str(columns.texts or "")]
    assert subprocess.run([python, "-c", KILLED, *arguments], check=False).returncode == -signal.SIGKILL
    with closing(open_index(source, columns)) as index:
        ids, before = content(index)
        assert 0 < index.written() < COUNT
        assert fill(index, rotated) == (COUNT, 0)
        keys, second = content(index, second=True)
        assert sorted(map(str, keys)) == sorted(map(str, ids))
        assert index.count() == len({*keys}) == COUNT
        np.testing.assert_allclose(second[[keys.index(key) for key in ids]], before @ ROTATION, atol=1e-5)


@pytest.mark.parametrize("row", [7, 6000])
def test_vectors_of_several_lengths_are_refused_in_one_line(xalign, workdir, row):
    lengths = np.full(6001, 24)
    lengths[row] = 20
    rng = np.random.default_rng(0)
    vectors = [rng.standard_normal(length).astype(np.float32) for length in lengths]
    pq.write_table(pa.table({"vector": vectors, "lang": ["en"] * 6001}), workdir / "docs.parquet")
    status, out, err = xalign("index", "audit", "docs.parquet")
    assert (status, out) == (2, "")
    assert "of 20 and 24 numbers" in err[-1] or "20 numbers" in err[-1]
    assert "unexpected" not in err[-1]
