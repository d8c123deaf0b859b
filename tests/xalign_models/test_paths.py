"""Paths: the environment decides where things lie, and nobody sees half a file."""

from __future__ import annotations

import errno
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from xalign_models.assets import resolve
from xalign_models.corpora.own_text import split_part
from xalign_models.errors import DataError, FileError
from xalign_models.paths import atomic_directory, atomic_file, atomic_write_text, cache_dir, data_dir, in_turn


def test_the_environment_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XALIGN_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("XALIGN_CACHE", "~/somewhere")
    assert cache_dir() == Path.home() / "somewhere"
    monkeypatch.delenv("XALIGN_CACHE")
    assert cache_dir().name == "xalign"
    monkeypatch.setenv("XALIGN_CACHE", "")
    assert cache_dir().name == "xalign"


def test_who_has_no_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XALIGN_CACHE", "~nobody-of-this-name/x")
    monkeypatch.setenv("XALIGN_DATA", "~nobody-of-this-name/x")
    with pytest.raises(FileError, match=r"no such home directory.*XALIGN_CACHE"):
        cache_dir()
    for read in (data_dir, lambda: split_part("~nobody-of-this-name/x"), lambda: resolve("~nobody-of-this-name/x")):
        with pytest.raises(FileError, match=r"no such home directory"):
            read()

    def missing(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XALIGN_CACHE")
    monkeypatch.setattr("pwd.getpwuid", missing)
    with pytest.raises(FileError, match=r"no such home directory.*Set HOME or XALIGN_CACHE"):
        cache_dir()


def test_the_environment_names_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XALIGN_DATA", str(tmp_path))
    assert data_dir() == tmp_path.resolve()
    monkeypatch.delenv("XALIGN_DATA")
    assert data_dir() is None
    monkeypatch.setenv("XALIGN_DATA", str(tmp_path / "missing"))
    with pytest.raises(DataError, match="XALIGN_DATA=.*missing is not a directory"):
        data_dir()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    atomic_write_text(path, "old é")
    with pytest.raises(RuntimeError), atomic_file(path) as temporary:
        temporary.write_text("half")
        assert path.read_text(encoding="utf-8") == "old é"
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "old é"
    atomic_write_text(path, "new")
    assert path.read_text() == "new"
    assert [one.name for one in path.parent.iterdir()] == ["file.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "new" / "asset"
    with atomic_directory(final) as temporary:
        (temporary / "a").write_text("1")
        assert not final.exists()
    with pytest.raises(RuntimeError), atomic_directory(final) as temporary:
        (temporary / "b").write_text("2")
        raise RuntimeError
    assert [one.name for one in final.iterdir()] == ["a"]
    with atomic_directory(final) as temporary:  # a second one replaces the first
        (temporary / "c").write_text("3")
    assert [one.name for one in final.iterdir()] == ["c"]
    assert [one.name for one in final.parent.iterdir()] == ["asset"]


def test_what_is_in_the_way_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device.*file.json"), atomic_file(tmp_path / "file.json"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_of_several_writers_of_a_directory_the_last_one_stays(tmp_path: Path) -> None:
    """As when two processes fit the same model at once: none of them fails."""

    def write(number: int) -> None:
        with atomic_directory(tmp_path / "model") as temporary:
            (temporary / str(number)).write_text("1")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(400)))
    assert len(list((tmp_path / "model").iterdir())) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_one_at_a_time_is_inside_and_the_others_say_that_they_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside = 0

    def enter(_: int) -> int:
        nonlocal inside
        with in_turn(tmp_path / ".lock", "It is busy."):
            inside += 1
            most = inside
            time.sleep(0.01)
            inside -= 1
        return most

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(enter, range(8))) == {1}
    assert "It is busy." in caplog.messages
    assert not list(tmp_path.iterdir())


def test_nobody_waits_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with in_turn(tmp_path / ".lock", "It is busy."):
        assert not list(tmp_path.iterdir())


def test_nothing_is_taken_apart_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final, removed = tmp_path / "model", []
    for name in ("old", "new"):
        with monkeypatch.context() as patch, atomic_directory(final) as temporary:
            (temporary / name).write_text("1")
            patch.setattr("shutil.rmtree", lambda path, **_: removed.append(Path(path)))
    assert len(removed) == 2
    assert final not in removed
    assert [one.name for one in final.iterdir()] == ["new"]
