"""Readers of what lies on disk give its content or one kind of error, whatever is there."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from xalign_models import files
from xalign_models.errors import FileError
from xalign_models.files import (
    is_number,
    parse_json,
    read_json,
    read_log,
    read_npz,
    safetensors_header,
    set_aside,
)

TENSORS = {"a.weight": np.ones((3, 4), dtype=np.float32), "ids": np.arange(5), "empty": np.zeros((0, 2), np.float16)}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans())
def test_json_comes_back(content: dict[str, object], ascii_only: bool) -> None:
    text = json.dumps(content, ensure_ascii=ascii_only).encode("utf-8")
    assert parse_json(text, "x") == content
    assert parse_json(b"\xef\xbb\xbf" + text, "x") == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "an object was expected, not list"),
        (b"1", "an object was expected, not int"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 250 + b"1" + b"}" * 250, "nested too deeply"),
        (b'{"a":["\\ud800"' + b",[0" * 5000 + b"]" * 5001 + b"}", "nested too deeply"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": "' + b"x" * 2000 + b'"}', "longer than 1000 bytes"),
    ],
)
def test_what_is_no_json_of_ours_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        read_json(tmp_path / "f.json", most=1000 if "longer" in message else 1 << 20)
    assert "\n" not in str(caught.value)
    assert "f.json" in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100, "{}" * 100, '"[' * 100, "\\" * 99, '\\"]', "\u2028["])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_brackets_in_texts_are_no_nesting(text: str, ascii_only: bool) -> None:
    content = json.dumps([text, [text]], ensure_ascii=ascii_only).encode()
    assert parse_json(content, "x", list) == [text, [text]]
    hidden = b'["]",' * 250 + b"1" + b',"["]' * 250  # deep, though its brackets look balanced
    with pytest.raises(FileError, match="too deeply"):
        parse_json(hidden, "x", list)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    for read in (read_json, read_npz, safetensors_header):
        with pytest.raises(FileError, match="nothing"):
            read(tmp_path / "nothing")
    assert read_log(tmp_path / "nothing") == ([], 0)
    with pytest.raises(FileError):
        read_json(tmp_path)


@pytest.mark.parametrize("special", ["pipe", "device"])
def test_what_never_ends_is_not_read(tmp_path: Path, special: str) -> None:
    path = tmp_path / "f"
    os.mkfifo(path) if special == "pipe" else path.symlink_to("/dev/zero")
    for read in (read_json, lambda path: read_json(path, list)):
        with pytest.raises(FileError, match="it is not a file"):
            read(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400), True, None, "1", [1]])
def test_what_is_no_finite_number(value: object) -> None:
    assert not is_number(value)
    assert is_number(0.5) and is_number(10**300)


def test_a_log_keeps_what_is_whole_and_counts_the_rest(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"a": 1}\nno\n{"a": 2}\n[1]\n\xff\n{"a": ')
    assert read_log(tmp_path / "log") == ([{"a": 1}, {"a": 2}], 4)


def test_arrays_come_back_and_objects_do_not(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **TENSORS)
    found = read_npz(tmp_path / "a.npz")
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(FileError, match="larger than 10 bytes"):
        read_npz(tmp_path / "a.npz", most=10)
    np.savez(tmp_path / "o.npz", a=np.array([{"x": 1}], dtype=object))
    np.savez(tmp_path / "p.npz", a=np.array(["a", "b"] * 500, dtype=object))  # a pickle shorter than 8 bytes each
    for name in ("o.npz", "p.npz"):
        with pytest.raises(FileError, match=rf"{name}: a holds Python objects \(pickle\)\. Save .*dtype=str") as caught:
            read_npz(tmp_path / name)
        assert "damaged" not in str(caught.value)
    np.savez(tmp_path / "n.npz", a=np.zeros((900, 0)))
    with pytest.raises(FileError, match=r"n\.npz: a has no numbers; its shape is \(900, 0\)\."):
        read_npz(tmp_path / "n.npz")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["npz", "safetensors"]), st.data())
def test_damage_is_refused_or_changes_nothing_that_is_read(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **TENSORS)
    content = bytearray(buffer.getvalue() if kind == "npz" else save(TENSORS))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / f"x.{kind}"
    path.write_bytes(content)
    try:
        found = read_npz(path) if kind == "npz" else safetensors_header(path)
    except FileError as error:
        assert "\n" not in str(error)
        return
    if kind == "npz":  # a zip member has a checksum: what is read is what was written, under whatever name
        assert all(any(np.array_equal(array, known) for known in TENSORS.values()) for array in found.values())


def test_the_header_of_weights_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(save(TENSORS))
    header = safetensors_header(tmp_path / "w")
    assert {name: (one.dtype, one.shape) for name, one in header.items()} == {
        "a.weight": ("F32", (3, 4)),
        "ids": ("I64", (5,)),
        "empty": ("F16", (0, 2)),
    }
    for change in (lambda content: content[:-1], lambda content: content + b"\0", lambda content: content[:20]):
        (tmp_path / "w").write_bytes(change(save(TENSORS)))
        with pytest.raises(FileError, match=r"cut off|expected"):
            safetensors_header(tmp_path / "w")


def test_what_is_set_aside_is_out_of_the_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "f").write_text("bad")
    assert set_aside(tmp_path / "f", "It is damaged.") == tmp_path / "f.damaged"
    assert not (tmp_path / "f").exists()
    assert "It is damaged. The file is set aside as f.damaged." in caplog.text
    assert set_aside(tmp_path / "f", "It is gone.") is None


def test_a_table_is_read_as_pyarrow_reads_it(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"en": ["a", None, "b"] * 5000, "n": range(15000), "x": [[0.5]] * 15000})
    pq.write_table(table, tmp_path / "table.parquet")
    assert files.read_parquet(tmp_path / "table.parquet").equals(table)
    assert files.read_parquet(tmp_path / "table.parquet", ["n", "en"]).column("en").equals(table.column("en"))
    with pytest.raises(FileError, match="has more than 100000 bytes of values"):
        files.read_parquet(tmp_path / "table.parquet", most=100_000)
    with pytest.raises(FileError, match="lacks one of the columns"):
        files.read_parquet(tmp_path / "table.parquet", ["other"])
