"""The store: what was put is there, whoever put it and however they ended; a full store forgets the oldest encoder."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models.backbones.raw import key
from xalign_models.errors import ModelError
from xalign_models.store import EmbeddingStore, default_path, open_store

DIM = 64
WRITER = """
import sys
from pathlib import Path
import numpy as np
from xalign_models.backbones.raw import key
from xalign_models.store import EmbeddingStore

store, name, count = EmbeddingStore(Path(sys.argv[1]), 1 << 26), sys.argv[2], int(sys.argv[3])
for i in range(count):
    keys = [key("", f"{name} {i} {j}") for j in range(8)]
    store.put("shared", keys, np.full((8, 64), i, dtype=np.float32))
    print(i, flush=True)
"""


def write(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def keys(count: int, prompt: str = "") -> list[bytes]:
    return [key(prompt, str(i)) for i in range(count)]


def vectors(count: int, value: float = 0.0) -> np.ndarray:
    return np.arange(count * DIM, dtype=np.float32).reshape(count, DIM) + np.float32(value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_vectors_come_back_as_float32_in_the_order_of_the_keys(path: Path, dtype: type) -> None:
    rows = vectors(5).astype(dtype)
    with EmbeddingStore(path) as store:
        store.put("one", keys(5), rows[:, ::-1])  # not contiguous
        found = store.get("one", [*keys(5)[::-1], key("", "never put")])
    assert found.pop() is None
    np.testing.assert_array_equal(np.stack([row for row in found if row is not None]), rows[::-1, ::-1])
    assert all(row is not None and row.dtype == np.float32 and not row.flags.writeable for row in found)


def test_what_was_put_is_there_when_the_store_is_opened_again(path: Path) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(3), vectors(3))
    with EmbeddingStore(path) as store:
        np.testing.assert_array_equal(np.stack(store.get("one", keys(3))), vectors(3))


@given(st.text(), st.text(), st.text(), st.text())
def test_keys_differ_when_prompt_or_text_differ(prompt: str, text: str, other_prompt: str, other_text: str) -> None:
    same = (prompt, text) == (other_prompt, other_text)
    assert (key(prompt, text) == key(other_prompt, other_text)) == same


@given(st.text(min_size=1), st.integers(min_value=0))
def test_the_boundary_of_prompt_and_text_counts(joined: str, cut: int) -> None:
    cuts = [(joined[:i], joined[i:]) for i in (cut % len(joined), len(joined))]
    assert key(*cuts[0]) != key(*cuts[1])


def test_a_lone_surrogate_has_a_key() -> None:
    assert len({key("", "\ud800"), key("\ud800", ""), key("", "?")}) == 3
    assert len(key("", "\ud800")) == 16


def test_namespaces_do_not_see_each_other(path: Path) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(2), vectors(2))
        store.put("two", keys(2), vectors(2, 7.0))
        assert store.get("three", keys(2)) == [None, None]
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))
        np.testing.assert_array_equal(np.stack(store.get("two", keys(2))), vectors(2, 7.0))
        assert store.clear("one") == 2
        assert store.get("one", keys(2)) == [None, None]
        np.testing.assert_array_equal(np.stack(store.get("two", keys(2))), vectors(2, 7.0))


def test_stats_and_clear(path: Path) -> None:
    with EmbeddingStore(path) as store:
        assert store.stats() == []
        assert store.clear() == 0
        for name, count in (("one", 3), ("two", 20)):
            store.put(name, keys(count), vectors(count))
        two, one = store.stats()
        assert (one.namespace, one.vectors, two.namespace, two.vectors) == ("one", 3, "two", 20)
        assert two.bytes >= 20 * DIM * 4
        assert two.last_used > one.last_used
        assert store.clear() == 23
        assert store.stats() == []
        store.put("one", keys(1), vectors(1))  # a cleared store takes vectors again
        assert [row is None for row in store.get("one", keys(2))] == [False, True]


def test_looking_at_the_stats_does_not_count_as_use(path: Path) -> None:
    with EmbeddingStore(path) as store:
        for name in ("one", "two"):
            store.put(name, keys(1), vectors(1))
        before = store.stats()
    with EmbeddingStore(path) as store:
        assert store.stats() == before
        assert store.stats() == before


def test_two_processes_write_at_once(path: Path) -> None:
    writers = [write(path, name, 50) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with EmbeddingStore(path) as store:
        wanted = [(name, i, j) for name in "ab" for i in range(50) for j in range(8)]
        found = store.get("shared", [key("", f"{name} {i} {j}") for name, i, j in wanted])
        assert all(row is not None and (row == i).all() for row, (_, i, _) in zip(found, wanted, strict=True))
        assert store.stats()[0].vectors == len(wanted)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_a_killed_writer_loses_nothing_that_it_had_put(path: Path) -> None:
    writer = write(path, "a", 1_000_000)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) == 20:
            break
    writer.send_signal(signal.SIGKILL)
    done = max([20, *(int(line) for line in writer.stdout)])
    writer.wait(60)
    with EmbeddingStore(path) as store:
        for i in range(done + 1):
            found = store.get("shared", [key("", f"a {i} {j}") for j in range(8)])
            assert all(row is not None and (row == i).all() for row in found)
        store.put("shared", keys(1), vectors(1))  # and the store is writable


def test_vectors_cleared_by_another_process_are_encoded_and_kept_anew(path: Path) -> None:
    code = "import sys; from pathlib import Path; from xalign_models.store import EmbeddingStore as S;"
    with EmbeddingStore(path) as store:
        store.put("one", keys(600), vectors(600))
        subprocess.run([sys.executable, "-c", f"{code} S(Path(sys.argv[1])).clear()", str(path)], check=True)
        assert store.get("one", keys(1)) == [None]
        store.put("one", keys(2), vectors(2))
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))
        assert store.stats()[0].vectors == 2
    with EmbeddingStore(path) as store:
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))


def test_a_put_after_another_process_cleared_is_not_lost(path: Path) -> None:
    code = "import sys; from pathlib import Path; from xalign_models.store import EmbeddingStore as S;"
    with EmbeddingStore(path) as store:
        store.put("one", keys(600), vectors(600))
        subprocess.run([sys.executable, "-c", f"{code} S(Path(sys.argv[1])).clear()", str(path)], check=True)
        store.put("one", keys(2), vectors(2))
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))
    with EmbeddingStore(path) as store:
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))
        assert [one.vectors for one in store.stats()] == [2]


def test_a_store_that_a_process_with_a_higher_limit_has_grown(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np;"
        "from xalign_models.backbones.raw import key; from xalign_models.store import EmbeddingStore;"
        "keys = [key('', str(i)) for i in range(4000)];"
        "EmbeddingStore(Path(sys.argv[1]), 1 << 24).put('big', keys, np.ones((4000, 64)))"
    )
    with EmbeddingStore(path, 1 << 20) as store:
        store.put("one", keys(2), vectors(2))
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        np.testing.assert_array_equal(np.stack(store.get("one", keys(2))), vectors(2))
        assert len(store.stats()) == 2
        store.put("one", keys(4), vectors(4))
        np.testing.assert_array_equal(np.stack(store.get("big", keys(4000))), np.ones((4000, DIM)))


class TestFull:
    """A store that has room for three encoders, and a fourth."""

    SIZE, COUNT = 3 << 19, 1000

    def fill(self, path: Path, *names: str) -> None:
        for name in names:  # each in a process of its own, so to say
            with EmbeddingStore(path, self.SIZE) as store:
                store.put(name, keys(self.COUNT), vectors(self.COUNT))

    def test_the_encoder_used_longest_ago_is_dropped(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            self.fill(path, "one", "two", "three")
            with EmbeddingStore(path, self.SIZE) as store:
                assert store.get("one", keys(1))[0] is not None  # so "two" is now the oldest
            self.fill(path, "four")
        with EmbeddingStore(path, self.SIZE) as store:
            assert sorted(one.namespace for one in store.stats()) == ["four", "one", "three"]
            for name in ("four", "one", "three"):
                np.testing.assert_array_equal(np.stack(store.get(name, keys(self.COUNT))), vectors(self.COUNT))
        assert [record.message for record in caplog.records if "dropping 1000 vectors of two" in record.message]

    def test_one_encoder_alone_fills_it_keeps_what_it_has_and_says_so_once(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING), EmbeddingStore(path, self.SIZE) as store:
            for i in range(20):
                store.put("one", [key(str(i), str(j)) for j in range(500)], vectors(500))
            kept = store.stats()[0].vectors
            assert 1000 <= kept < 20 * 500
            first = store.get("one", [key("0", str(j)) for j in range(500)])
            np.testing.assert_array_equal(np.stack(first), vectors(500))
            assert store.get("one", [key("19", "0")]) == [None]
            assert store.get("two", [key("19", "0")]) == [None]
            store.put("two", keys(3000), vectors(3000))  # another encoder is the newer one
            assert [one.namespace for one in store.stats()] == ["two"]
            store.put("one", keys(1), vectors(1))  # there is room again
            assert store.get("one", keys(1))[0] is not None
        (full,) = [record.message for record in caplog.records if "is full (" in record.message]
        assert "XALIGN_STORE_GB" in full
        assert "xalign store clear" in full

    def test_a_full_store_can_still_be_read_and_cleared(self, path: Path) -> None:
        with EmbeddingStore(path, self.SIZE) as store:
            for i in range(20):
                store.put("one", [key(str(i), str(j)) for j in range(100)], vectors(100))
        with EmbeddingStore(path, self.SIZE) as store:
            assert store.get("one", [key("0", "0")])[0] is not None
            assert store.clear() >= 1000
            assert store.stats() == []

    def test_many_small_encoders_make_room_for_each_other(self, path: Path) -> None:
        for i in range(40):
            with EmbeddingStore(path, self.SIZE) as store:
                store.put(f"encoder {i}", keys(200), vectors(200))
                np.testing.assert_array_equal(np.stack(store.get(f"encoder {i}", keys(200))), vectors(200))
        with EmbeddingStore(path, self.SIZE) as store:
            left = [int(one.namespace.split()[1]) for one in store.stats()]
        assert left == list(range(39, 39 - len(left), -1))
        assert len(left) > 5


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from xalign_models.backbones.raw import key
from xalign_models.store import EmbeddingStore

store = EmbeddingStore(Path(sys.argv[1]), 1 << 26)
store.put("other", [key("", "0")], np.zeros((1, 64)))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # the disk takes no more
for i in range(20):
    store.put("one", [key(str(i), str(j)) for j in range(500)], np.full((500, 64), i))
for i in range(20):
    found = store.get("one", [key(str(i), str(j)) for j in range(500)])
    print(all(row is not None and (row == i).all() for row in found), {type(row) for row in found} == {type(None)})
"""


@pytest.mark.skipif(os.name != "posix", reason="resource is POSIX")
def test_a_full_disk_ends_the_keeping_and_not_the_run(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    blocks = done.stdout.splitlines()
    kept = blocks.count("True False")
    assert 0 < kept < 20
    assert blocks == ["True False"] * kept + ["False True"] * (20 - kept)
    (warning,) = done.stderr.splitlines()
    assert "cannot be written" in warning
    assert "XALIGN_STORE" in warning


def test_a_full_disk_is_noticed_before_its_file_of_readers_is_mapped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first touch of a page that has no room kills the process, without a word."""
    with EmbeddingStore(path):
        state = (path / "lock.mdb").stat()
        assert state.st_blocks * 512 >= state.st_size > 0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with EmbeddingStore(path):
        pass
    (path / "lock.mdb").unlink()
    with pytest.raises(ModelError, match="No space left on device.*make room"):
        EmbeddingStore(path)


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a directory")
    with pytest.raises(ModelError, match=r"Cannot open the store .*XALIGN_STORE"):
        EmbeddingStore(tmp_path / "store")


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XALIGN_STORE", raising=False)
    monkeypatch.setenv("XALIGN_CACHE", str(tmp_path))
    assert default_path() == tmp_path / "store"
    monkeypatch.setenv("XALIGN_STORE", str(tmp_path / "elsewhere"))
    assert default_path() == tmp_path / "elsewhere"
    store = open_store()
    assert store.path == tmp_path / "elsewhere"
    assert open_store() is store  # LMDB opens a directory once in a process
    monkeypatch.setenv("XALIGN_STORE", str(tmp_path / "third"))
    assert open_store().path == tmp_path / "third"


@pytest.mark.parametrize("value", ["many", "-1", "0", "nan"])
def test_a_size_that_is_none_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XALIGN_STORE_GB", value)
    with pytest.raises(ModelError, match=f"XALIGN_STORE_GB={value}"):
        EmbeddingStore(path)


@pytest.mark.parametrize("damage", ["bit", "length", "other key"])
def test_a_damaged_vector_is_never_used_and_said_aloud(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(3), vectors(3))
        database = store._env.open_db(b"2:one")
        with store._env.begin(write=True, db=database) as transaction:
            value = bytearray(transaction.get(keys(3)[1]))
            value[17] ^= 4
            other = bytes(transaction.get(keys(3)[2]))
            bad = {"bit": bytes(value), "length": bytes(value[:-8]), "other key": other}[damage]
            transaction.put(keys(3)[1], bad)
        assert [row is None for row in store.get("one", keys(3))] == [False, True, False]
        assert "1 damaged vectors of one are encoded again" in caplog.text
        store.put("one", keys(3)[1:2], vectors(3)[1:2])
        np.testing.assert_array_equal(np.stack(store.get("one", keys(3))), vectors(3))


def test_vectors_of_two_dimensions_are_all_encoded_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(2), vectors(2))
        store.put("one", [key("", "short")], vectors(1)[:, :8])
        assert store.get("one", [*keys(2), key("", "short")]) == [None] * 3
    assert "3 damaged" in caplog.text


@pytest.mark.parametrize("keep", [10, 5_000, 0.3, 0.7])
def test_a_store_that_is_cut_off_is_set_aside_before_it_is_mapped(path: Path, keep: float) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(2_000), vectors(2_000))
    size = (path / "data.mdb").stat().st_size
    os.truncate(path / "data.mdb", int(keep if keep > 1 else keep * size))
    script = (
        "import sys; from pathlib import Path; from xalign_models.store import EmbeddingStore\n"
        "with EmbeddingStore(Path(sys.argv[1])) as store:\n"
        "    for one in store.stats(): store.get(one.namespace, [b'x' * 16])\n"
        "    print(sum(one.vectors for one in store.stats()))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr  # -7 is a bus error
    assert "set aside as data.mdb.damaged" in done.stderr


def test_a_file_that_is_no_store_is_set_aside(path: Path) -> None:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"garbage" * 10_000)
    with EmbeddingStore(path) as store:
        assert store.stats() == []
    assert (path / "data.mdb.damaged").is_file()


def test_a_store_with_unwritten_pages_at_its_end_is_whole(path: Path) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(500), vectors(500))
    size = (path / "data.mdb").stat().st_size
    with (path / "data.mdb").open("r+b") as file:  # as if the last page had been allocated and given back unwritten
        page = int.from_bytes(file.read(44)[40:], "little")
        for offset in (0, page):
            file.seek(offset + 136)
            last = int.from_bytes(file.read(8), "little")
            file.seek(offset + 136)
            file.write((max(last, size // page - 1) + 1).to_bytes(8, "little"))
    with EmbeddingStore(path) as store:
        np.testing.assert_array_equal(np.stack(store.get("one", keys(500))), vectors(500))
    assert not (path / "data.mdb.damaged").exists()


def damage_root(path: Path, name: str) -> None:
    """Overwrite the head of the first page of an encoder's vectors."""
    with lmdb.open(str(path), max_dbs=9) as environment, environment.begin() as transaction:
        root = int.from_bytes(transaction.get(b"2:" + name.encode())[40:48], "little")
        size = environment.stat()["psize"]
    with (path / "data.mdb").open("r+b") as file:
        file.seek(root * size + 8)
        file.write(b"\xff" * 8)


def test_vectors_that_cannot_be_reached_are_counted_and_the_store_is_set_aside(path: Path) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(2_000), vectors(2_000))
        store.put("two", keys(3), vectors(3))
    damage_root(path, "one")
    with EmbeddingStore(path) as store:
        assert [*store.verify()] == [*store.verify()] == [("one", 2_000, 2_000), ("two", 3, 0)]
        with pytest.raises(ModelError, match=r"is damaged .*; run `xalign verify --clean`\.$"):
            store.clear("one")
        assert [*store.verify(clean=True)] == [("one", 2_000, 2_000), ("two", 3, 0)]
        assert [*store.verify()] == store.stats() == []
        assert (path / "data.mdb.damaged").is_file()
        store.put("one", keys(3), vectors(3))
        np.testing.assert_array_equal(np.stack(store.get("one", keys(3))), vectors(3))


def test_a_store_whose_pages_would_end_the_process_is_set_aside(path: Path) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(2_000), vectors(2_000))
    with lmdb.open(str(path), max_dbs=9) as environment, environment.begin() as transaction:
        root = int.from_bytes(transaction.get(b"2:one")[40:48], "little")
        size = environment.stat()["psize"]
    with (path / "data.mdb").open("r+b") as file:
        for page in range(root + 1, root + 20):
            file.seek(page * size)
            file.write(bytes(size))
    code = "import sys, pathlib; from xalign_models.store import EmbeddingStore as Store; "
    code += "print([list(Store(pathlib.Path(sys.argv[1])).verify(clean)) for clean in (False, True, True)])"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[[('all', 1, 1)], [('all', 1, 1)], []]\n"
    assert (path / "data.mdb.damaged").is_file()


@pytest.mark.parametrize("value", [b"a word", b"\xff", b"nan", b"inf", b"1e300", b"-1", b""])
def test_a_damaged_time_of_use_counts_as_the_oldest_and_is_mended(path: Path, value: bytes) -> None:
    with EmbeddingStore(path) as store:
        store.put("one", keys(3), vectors(3))
        store.put("two", keys(2), vectors(2))
        with store._env.begin(write=True, db=store._used) as transaction:
            transaction.put(b"one", value)
            transaction.put(b"\xff\xfe", value)
        for clean in (False, True):
            assert [(one.namespace, one.last_used > 0) for one in store.stats()] == [("two", True), ("one", False)]
            assert [*store.verify(clean)] == [("one", 3, 0), ("two", 2, 0)]
        with store._env.begin(db=store._used) as transaction:
            assert [(bytes(name), float(time) > 0) for name, time in transaction.cursor()] == [
                (b"one", False),
                (b"two", True),
            ]
        assert store.clear() == 5
