"""Locations of files, and atomic writing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xalign_models.errors import DataError


def cache_dir() -> Path:
    """The cache's root: ``$XALIGN_CACHE``, else the platform's user cache directory."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("XALIGN_CACHE") or user_cache_dir("xalign", appauthor=False)).expanduser()


def data_dir() -> Path | None:
    """The directory of locally held corpora, ``$XALIGN_DATA``, or None when it is not set.

    Raises:
        DataError: The variable names something that is not a directory.
    """
    value = os.environ.get("XALIGN_DATA")
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_dir():
        raise DataError(f"XALIGN_DATA={value} is not a directory; point it at a folder of corpora, or unset it.")
    return path.resolve()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it into place on success, remove it on error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp makes private files; results and assets are meant to be shared
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 so that readers see the old file or the new one, never a part."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Exclude other processes that call it for ``folder``, without a lock file; no effect on Windows."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def atomic_directory(final: Path) -> Iterator[Path]:
    """Yield an empty directory beside ``final``; it replaces ``final`` on success and vanishes on error.

    The old directory is renamed too, so that no reader finds half of it; writers must take turns.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent))
    temporary = holder / "new"
    try:
        temporary.mkdir()
        yield temporary
        temporary.chmod(0o755)
        with suppress(FileNotFoundError):
            final.rename(holder / "old")
        temporary.rename(final)
    finally:
        shutil.rmtree(holder, ignore_errors=True)
