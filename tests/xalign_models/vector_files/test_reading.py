"""Files of vectors are read alike whatever their form, and damaged or hostile ones are refused in one line."""

from __future__ import annotations

import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xalign_models.errors import FileError
from xalign_models.vector_files.parquet import column_of, matrix_of
from xalign_models.vector_files.reading import read_vectors

TEXTS = ["eins", "zwei", "drei", ""]
MATRIX = np.random.default_rng(0).standard_normal((4, 8))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("form", ["fixed", "list", "large", "tensor", "npz", "safetensors"])
def test_every_form_gives_the_same_vectors(tmp_path, write_vectors, form, dtype):
    suffix = form if form in {"npz", "safetensors"} else "parquet"
    path = write_vectors(tmp_path / f"v.{suffix}", TEXTS, MATRIX.astype(dtype), kind=form)
    found = read_vectors(path)
    assert (found.by, found.names, found.matrix.dtype) == ("text", TEXTS, dtype)
    np.testing.assert_array_equal(found.matrix, MATRIX.astype(dtype))
    if suffix == "parquet":
        column = pq.read_table(path).column("vector").combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        assert column_of(matrix_of(column, ""), column.type).equals(column)


def test_whole_numbers_are_ids(tmp_path, write_vectors):
    for name in ("v.parquet", "v.npz", "v.safetensors"):
        found = read_vectors(write_vectors(tmp_path / name, [7, 8, 9, 10], MATRIX, by="id"))
        assert (found.by, found.names, found.hashed) == ("id", ["7", "8", "9", "10"], False)


def test_a_directory_of_parts_is_one_file(tmp_path, write_vectors):
    for number in (1, 0):
        rows = slice(2 * number, 2 * number + 2)
        write_vectors(tmp_path / f"{number}.parquet", TEXTS[rows], MATRIX[rows])
    found = read_vectors(tmp_path)
    assert found.names == TEXTS
    np.testing.assert_array_equal(found.matrix, MATRIX)


def changed(row: int, value: object) -> np.ndarray:
    matrix = MATRIX.copy()
    matrix[row] = value
    return matrix


@pytest.mark.parametrize("name", ["v.parquet", "v.npz", "v.safetensors"])
@pytest.mark.parametrize(
    ("texts", "matrix", "message"),
    [
        (TEXTS, changed(2, np.nan), "row 2 is not finite"),
        (TEXTS, changed(1, np.inf).astype(np.float16), "row 1 is not finite"),
        (TEXTS, changed(3, 0), "row 3 is zero"),
        (["eins", "zwei", "eins", ""], MATRIX, "rows 0 and 2 have different vectors for one text, 'eins'"),
        (TEXTS[:0], MATRIX[:0], "no rows"),
        (TEXTS, MATRIX.astype(np.int32), "float16, float32 or float64"),
    ],
)
def test_vectors_that_cannot_be_used_are_refused(tmp_path, write_vectors, name, texts, matrix, message):
    with pytest.raises(FileError, match=message) as caught:
        read_vectors(write_vectors(tmp_path / name, texts, matrix))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["v.parquet", "v.npz", "v.safetensors"])
@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        (1e39, np.float64),
        (1e200, np.float64),
        (-1e30, np.float32),
        (np.eye(8)[3] * 2e18, np.float32),
        (1e-25, np.float32),
        (1e-60, np.float64),
        (1e-300, np.float64),
    ],
)
def test_vectors_whose_length_float32_cannot_keep_are_refused(tmp_path, write_vectors, name, row, dtype):
    with pytest.raises(FileError, match=r"row 2 has the length \S+, which is too (large|small) for float32"):
        read_vectors(write_vectors(tmp_path / name, TEXTS, changed(2, row).astype(dtype)))
    for scale in (1e-11, 1e17):
        assert len(read_vectors(write_vectors(tmp_path / name, TEXTS, (scale * MATRIX).astype(dtype))).matrix) == 4
    smallest = changed(2, 6e-8).astype(np.float16)
    np.testing.assert_array_equal(read_vectors(write_vectors(tmp_path / name, TEXTS, smallest)).matrix, smallest)


def test_equal_texts_with_equal_vectors_are_no_fault(tmp_path, write_vectors):
    found = read_vectors(write_vectors(tmp_path / "v.parquet", ["a", "b", "a"], MATRIX[[0, 1, 0]]))
    np.testing.assert_array_equal(found.matrix[found.row["a"]], MATRIX[0])


def test_lists_that_are_no_matrix_are_refused(tmp_path):
    for rows, message in (
        ([[1.0, 2.0], [1.0]], "row 1 has the length 1, and others 2"),
        ([[1.0, 2.0], None], "row 1 has no vector"),
        ([[1.0, 2.0], [1.0, None]], "numbers that are missing from row .* on: 1"),
        ([[], []], "the vectors have no numbers"),
    ):
        pq.write_table(
            pa.table({"text": ["a", "b"], "vector": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "v.parquet"
        )
        with pytest.raises(FileError, match=message):
            read_vectors(tmp_path / "v.parquet")


def test_columns_that_do_not_say_what_they_are_are_refused(tmp_path):
    vectors = pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32()))
    for columns, message in (
        ({"text": ["a", "b"]}, "no column of lists of numbers"),
        ({"text": ["a", "b"], "x": vectors, "y": vectors}, "its lists of numbers are x, y"),
        ({"title": ["a", "b"], "vector": vectors}, "neither text nor id"),
        ({"text": ["a", None], "vector": vectors}, "each row needs a text"),
        ({"text": [1.5, 2.5], "vector": vectors}, "a text or a whole number"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "v.parquet")
        with pytest.raises(FileError, match=message):
            read_vectors(tmp_path / "v.parquet")


def test_texts_of_bytes_that_are_no_utf_8_are_refused(tmp_path):
    ends = np.array([0, 2, 4], dtype="<i4")
    texts = pa.StringArray.from_buffers(2, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"ok\xff\xfe"))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(8, dtype=np.float32)), 4)
    pq.write_table(pa.table({"text": texts, "vector": vectors}), tmp_path / "vectors.parquet")
    with pytest.raises(FileError, match="not a readable parquet file.*utf-8"):
        read_vectors(tmp_path / "vectors.parquet")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
def test_numbers_that_numpy_does_not_have_are_refused(tmp_path, dtype):
    ids = {"dtype": dtype, "shape": [2], "data_offsets": [16, 18]}
    header = json.dumps({"vector": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "id": ids}).encode()
    content = struct.pack("<Q", len(header)) + header + np.ones(4, dtype=np.float32).tobytes() + b"12"
    (tmp_path / "vectors.safetensors").write_bytes(content)
    with pytest.raises(FileError, match="cannot be read as safetensors"):
        read_vectors(tmp_path / "vectors.safetensors")


def test_objects_and_claims_of_a_file_are_refused(tmp_path):
    np.savez(tmp_path / "pickle.npz", text=np.array(["a", {"x": 1}], dtype=object), vectors=np.ones((2, 3)))
    np.savez(tmp_path / "ragged.npz", text=np.array(["a", "b"]), vectors=np.array([[1], [1, 2]], dtype=object))
    np.savez(tmp_path / "short.npz", text=np.array(["a"]), vectors=np.ones((2, 3)))
    header = str({"descr": "<f4", "fortran_order": False, "shape": (10**12, 384)}).encode().ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("vectors.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    claim = json.dumps({"vectors": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    (tmp_path / "huge.safetensors").write_bytes(struct.pack("<Q", len(claim)) + claim)
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + claim)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + b"\0" * 40 + struct.pack("<I", 1 << 30) + b"PAR1")
    (tmp_path / "other.csv").write_text("text,vector\n")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 8
    for path in [*files, tmp_path / "nothing.parquet", tmp_path / "nothing.npz"]:
        with pytest.raises(FileError) as caught:
            read_vectors(path)
        assert "\n" not in str(caught.value)
        assert path.name in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["v.parquet", "v.npz", "v.safetensors"]), st.data())
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, write_vectors, name, data):
    path = write_vectors(tmp_path / name, TEXTS, MATRIX)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    try:
        found = read_vectors(path)
    except FileError as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(found.matrix).all()
        assert len(found.names) == len(found.matrix)
