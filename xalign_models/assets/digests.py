"""Fingerprints of checkpoint directories, from the content of every file that can change the model's output."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from xalign_models.assets.download import sha256_file
from xalign_models.errors import FileError
from xalign_models.files import read_json
from xalign_models.paths import atomic_write_text, cache_dir

_SUFFIXES = frozenset(
    ".bin .data .gguf .jinja .json .jsonl .model .npz .onnx .onnx_data .py .safetensors .txt .xml".split()
)
_RACY = 2_000_000_000
"""Nanoseconds in which a file may change again without a new timestamp; younger files are always read."""
CARD = "xalign.json"
"""A saved model's card; it contains the fingerprint, so it is excluded from it."""
_IGNORED = frozenset({CARD, "MANIFEST.json", "LICENSE-NOTE.txt", "LICENSE.txt"})


def _counts(relative: str) -> bool:
    """Whether a file belongs to the model: not hidden, not documentation."""
    path = PurePosixPath(relative)
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in _SUFFIXES and path.name not in _IGNORED and not hidden


def combine(files: Mapping[str, str]) -> str:
    """One sha256 from ``relative name -> sha256 of the content``, over the files that belong to the model."""
    lines = sorted(f"{content}  {name}\n" for name, content in files.items() if _counts(name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def directory_fingerprint(directory: Path, without: str = "", hash_file: Callable[[Path], str] | None = None) -> str:
    """The fingerprint of a local checkpoint directory, from names and contents, not from its location.

    Links are followed. Hashes are cached, so that only changed files are read again, as seen by size, both times and
    inode: a copy that keeps times (``cp -p``) still has its own change time and inode.

    Args:
        directory: The checkpoint.
        without: Pattern of names to exclude, e.g. ``*_Aligned/*``.
        hash_file: Function that returns the sha256 (hex) of a new or changed file.
    """
    directory = directory.resolve()
    record = cache_dir() / "fingerprints" / f"{hashlib.sha256(str(directory).encode()).hexdigest()}.json"
    try:
        recorded = read_json(record)
    except FileError:
        recorded = {}
    current: dict[str, list[Any]] = {}
    settled = time.time_ns() - _RACY
    for name, file in sorted(_files(directory)):
        stat = file.stat()
        state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
        *recorded_state, content = recorded.get(name) or [None]
        if recorded_state != state or stat.st_ctime_ns > settled or not isinstance(content, str):
            content = (hash_file or sha256_file)(file)
        current[name] = [*state, content]
    if current != recorded:
        with suppress(OSError):  # a cache that cannot be written costs time, nothing else
            atomic_write_text(record, json.dumps(current))
    return combine({name: str(entry[-1]) for name, entry in current.items() if not fnmatchcase(name, without)})


def file_fingerprint(path: Path) -> str:
    """Sha256 (hex) of a file or of the parquet parts of a directory, cached by size, times and inode.

    Raises:
        OSError: There is no such file.
    """
    if path.is_dir():
        parts = [f"{part.name} {file_fingerprint(part)}\n" for part in sorted(path.glob("*.parquet"))]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    stat = path.stat()
    return _content(path.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


@lru_cache(maxsize=1024)
def _content(path: Path, *_: int) -> str:
    return sha256_file(path)


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Files that belong to the model, by relative name; cycles of links are entered once."""
    pending = [(directory, frozenset({directory}))]
    while pending:
        folder, above = pending.pop()
        for path in folder.iterdir():
            name = path.relative_to(directory).as_posix()
            if path.is_dir():
                real = path.resolve()
                if real not in above:
                    pending.append((path, above | {real}))
            elif _counts(name) and path.is_file():
                yield name, path
