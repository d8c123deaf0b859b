"""Locations of files, atomic writing, and locks."""

import ctypes
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_dir

from xalign_models.errors import DataError, FileError, ModelError

logger = logging.getLogger(__name__)

CARD = "xalign.json"
"""File name of a saved model's card, which contains the fingerprint and is therefore excluded from it."""
MARKERS = {CARD: "is not a model of xalign", "map.json": "holds no maps"}
"""Files that mark a directory as xalign's, and what it is without them. Their ``files`` lists our files."""


def cache_dir() -> Path:
    """The cache's root: ``$XALIGN_CACHE``, else the platform's user cache directory.

    Raises:
        FileError: It is in a home directory that does not exist.
    """
    try:
        return Path(os.environ.get("XALIGN_CACHE") or user_cache_dir("xalign", appauthor=False)).expanduser()
    except RuntimeError:
        message = "There is no such home directory for the cache. Set HOME or XALIGN_CACHE to a folder."
        raise FileError(message) from None


def expanded(path: str | Path) -> Path:
    """The path with ``~`` replaced by the home directory.

    Raises:
        FileError: There is no such home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise FileError(f"{path}: there is no such home directory. Write the whole path.") from None


def data_dir() -> Path | None:
    """The directory of locally held corpora, ``$XALIGN_DATA``, or None when it is not set.

    Raises:
        DataError: The variable does not name a directory.
    """
    value = os.environ.get("XALIGN_DATA")
    if not value:
        return None
    path = expanded(value)
    if not path.is_dir():
        raise DataError(f"XALIGN_DATA={value} is not a directory; point it at a folder of corpora, or unset it.")
    return path.resolve()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it into place on success, remove it on error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp makes private files, but results and assets are shared
        temporary.replace(path)
    except OSError as error:
        if error.filename is None:  # a failed write, on a full disk, does not know the name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 so that readers see the old file or the new one, never a part of it."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Exclude other processes that call this for the same folder, without a lock file; no effect on Windows."""
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
def in_turn(lock: Path, waiting: str) -> Iterator[None]:
    """Exclude other processes that use the same lock file, for long work; a process that waits logs it once.

    The lock file exists while a process is inside. Without permission to create it nobody waits, since nobody can write
    there.
    """
    turn = FileLock(lock)
    try:
        turn.acquire(timeout=0)
    except Timeout:
        logger.warning("%s", waiting)
        turn.acquire()
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
    try:
        yield
    finally:
        if turn.is_locked:
            with suppress(OSError):  # before the release, so that a waiting process creates its own file
                lock.unlink()
            turn.release()


@contextmanager
def atomic_directory(final: Path, marker: str | None = None, known: Collection[str] = ()) -> Iterator[Path]:
    """Yield an empty directory beside ``final``; it replaces ``final`` on success and vanishes on error.

    A user's directory needs a ``marker``, without which :func:`require_replaceable` refuses to replace it; ``known``
    are paths of files in it that may go as well.

    The two are exchanged in one step where the system can do that. Elsewhere the old directory is renamed first, and
    after a kill between the two renames :func:`restore` puts the new one in place. The last of several writers wins.
    """
    if marker:
        require_replaceable(final, marker, known=known)
    final.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent))
    temporary = holder / "new"
    try:
        temporary.mkdir()
        yield temporary
        temporary.chmod(0o755)
        with one_at_a_time(final.parent):
            if not (os.path.lexists(final) and _exchange(temporary, final)):
                with suppress(FileNotFoundError):
                    final.rename(holder / "old")
                temporary.rename(final)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def require_replaceable(directory: Path, marker: str, option: str = "", known: Collection[str] = ()) -> None:
    """Refuse to replace anything but an empty directory or one with the file ``marker`` and nothing of the user's.

    Raises:
        ModelError: Something else is there, a git repository, or a file that the marker's ``files`` does not list; the
            message names the option, if any.
    """
    if not os.path.lexists(directory):
        return
    what = f"{option} {directory}".lstrip()
    if not directory.is_dir():
        reason = "it is a file"
    elif (directory / ".git").exists():
        reason = "it is a git repository"
    elif any(directory.iterdir()) and not (directory / marker).is_file():
        reason = "it has other content"
    elif foreign := sorted(_unlisted(directory, marker).difference(known)):
        more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
        raise ModelError(
            f"{what} has files that xalign did not write ({foreign[0]}{more}) and would lose them; move them, or "
            "choose a new directory."
        )
    else:
        return
    raise ModelError(f"{what} exists and {MARKERS[marker]}: {reason}; choose a new directory.")


def _unlisted(directory: Path, marker: str) -> set[str]:
    """Files below a directory that its marker's ``files`` does not list; none if there is no such list."""
    from xalign_models.files import read_json  # it imports numpy, which few commands need

    try:
        return files_below(directory).difference(read_json(directory / marker)["files"])
    except (FileError, KeyError, TypeError):
        return set()


def files_below(directory: Path) -> set[str]:
    """Paths of all files below a directory, relative to it, but for Python's caches."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if not path.is_dir())
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def final_of(holder: Path) -> Path:
    """The directory that the temporary folder of :func:`atomic_directory` is for."""
    return holder.with_name(holder.name[1:].rsplit(".", 2)[0])


def restore(holder: Path) -> None:
    """Put a directory in its place that a kill between two renames of :func:`atomic_directory` left behind."""
    final = final_of(holder)
    with one_at_a_time(holder.parent):
        if os.path.lexists(holder / "old") and not os.path.lexists(final):
            (holder / "new").rename(final)  # it was complete when the old one was renamed


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; False if the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def unwritable(path: Path) -> str | None:
    """Why nothing new can be written at ``path``, or None. The nearest existing parent is tried."""
    try:
        with tempfile.TemporaryDirectory(dir=next(parent for parent in path.absolute().parents if parent.exists())):
            return None
    except OSError as error:
        return error.strerror
