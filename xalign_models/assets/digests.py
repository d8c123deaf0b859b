"""Fingerprints of checkpoint directories, from the content of every file that can change the model's output."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from xalign_models.errors import FileError
from xalign_models.files import file_digest, read_json, sha256_file
from xalign_models.paths import atomic_write_text, cache_dir

_SUFFIXES = frozenset(
    ".bin .data .gguf .jinja .json .jsonl .model .npz .onnx .onnx_data .py .safetensors .txt .xml".split()
)
RACY = 2_000_000_000
"""Nanoseconds within which a file may change without a new timestamp; younger files are always read."""
CARD = "xalign.json"
"""File name of a saved model's card, which contains the fingerprint and is therefore excluded from it."""
_IGNORED = frozenset({CARD, "MANIFEST.json", "LICENSE-NOTE.txt", "LICENSE.txt"})


def _counts(relative: str) -> bool:
    """Whether a file belongs to the model: neither hidden nor documentation."""
    path = PurePosixPath(relative)
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in _SUFFIXES and path.name not in _IGNORED and not hidden


def combine(files: Mapping[str, str]) -> str:
    """Sha256 (hex) of the names and contents (``relative name -> sha256``) of the files that belong to the model."""
    lines = sorted(f"{content}  {name}\n" for name, content in files.items() if _counts(name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def directory_fingerprint(directory: Path, without: str = "", hash_file: Callable[[Path], str] | None = None) -> str:
    """Fingerprint of a local checkpoint directory, from the names and contents of its files and not from its location.

    Links are followed. Hashes are cached, so a file is read again only if its size, times or inode change. A copy that
    keeps the modification time (``cp -p``) still has its own change time and inode.

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
    settled = time.time_ns() - RACY
    for name, file in sorted(_files(directory)):
        stat = file.stat()
        state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
        *recorded_state, content = recorded.get(name) or [None]
        if recorded_state != state or stat.st_ctime_ns > settled or not isinstance(content, str):
            content = (hash_file or sha256_file)(file)
        current[name] = [*state, content]
    if current != recorded:
        with suppress(OSError):  # without a writable cache files are only read more often
            atomic_write_text(record, json.dumps(current))
    return combine({name: str(entry[-1]) for name, entry in current.items() if not fnmatchcase(name, without)})


def file_fingerprint(path: Path) -> str:
    """Sha256 (hex) of a file or of the parquet parts of a directory, cached."""
    if path.is_dir():
        parts = [f"{part.name} {file_fingerprint(part)}\n" for part in sorted(path.glob("*.parquet"))]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    return file_digest(path)


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Relative names and paths of the files that belong to the model; a cycle of links is entered once."""
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
