"""Checks of LMDB files before they are mapped: a missing page, or a full disk, would kill the process."""

import os
import struct
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from xalign_models.errors import ModelError
from xalign_models.files import require_regular, set_aside

_MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
_PAGE = 65_536  # bytes of the largest possible page
_LOCK = 69_632  # bytes of the lock file for 1,024 readers
_READ_ALL = """
import sys, lmdb
with lmdb.open(sys.argv[1], readonly=True, lock=False, max_dbs=1024) as env:
    with env.begin() as outer:
        for name in list(outer.cursor().iternext(values=False)):
            for key, value in outer.cursor(env.open_db(name, outer, create=False)):
                bytes(value)
"""


def require_installed(module: ModuleType) -> None:
    """Refuse an ``lmdb`` that does not come from the installed package, such as a file ``lmdb.py`` of the user's.

    Raises:
        ModelError: The module lies elsewhere.
    """
    origin = Path(str(module.__spec__.origin if module.__spec__ else ""))
    with suppress(PackageNotFoundError):  # an application that was packed without metadata
        package = Path(str(distribution("lmdb").locate_file("lmdb")))
        if origin.resolve().parent != package.resolve():
            raise ModelError(f"{origin} hides the package lmdb, which keeps the vectors; rename it, or run elsewhere.")


def set_aside_if_damaged(path: Path) -> None:
    """Rename a store that ends before its last page.

    Raises:
        FileError: A file of the store is a pipe, a device or a folder.
    """
    for place in (path / "data.mdb", path / "lock.mdb"):
        if place.exists():
            require_regular(place)
    file = path / "data.mdb"
    if _is_long_enough(file):
        return
    command = [sys.executable, "-P", "-c", _READ_ALL, str(path)]
    with FileLock(path / ".repair.lock"):
        if not _is_long_enough(file) and subprocess.run(command, capture_output=True, check=False).returncode:
            set_aside(file, f"The store at {path} is damaged or cut off.")


def kills_readers(path: Path) -> bool:
    """Whether a page of a store is so damaged that LMDB ends the process that reads it; reads the store in another."""
    command = [sys.executable, "-P", "-c", _READ_ALL, str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode < 0


def reserve_lock(path: Path) -> None:
    """Allocate the lock file, which LMDB creates sparse and maps, so that a full disk would kill the process.

    Raises:
        OSError: The disk is full.
    """
    with suppress(PermissionError), (path / "lock.mdb").open("ab") as file:
        if hasattr(os, "posix_fallocate") and os.fstat(file.fileno()).st_blocks * 512 < _LOCK:
            os.posix_fallocate(file.fileno(), 0, _LOCK)


def _is_long_enough(file: Path) -> bool:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(_PAGE + 4096)
    except OSError:
        return True  # no store yet, or an error that lmdb reports itself
    if size == 0:
        return True
    metas = []
    for offset in (0, int.from_bytes(head[40:44], "little") or 4096):  # two meta pages; the newer one counts
        meta = head[offset + 16 : offset + 152]
        if len(meta) == 136 and meta[:4] == _MAGIC:
            last_page, transaction = struct.unpack("<QQ", meta[120:])
            metas.append((transaction, (last_page + 1) * int.from_bytes(meta[24:28], "little")))
    return bool(metas) and size >= max(metas)[1]
