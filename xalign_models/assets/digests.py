"""Fingerprints of checkpoint directories: the name and content of every file but notes and a trainer's state."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from xalign_models.errors import FileError
from xalign_models.files import RACY, file_digest, read_json, sha256_file, state_of
from xalign_models.paths import CARD, atomic_write_text, cache_dir

_HOUSEKEEPING = frozenset({".cache", ".DS_Store", ".git", ".gitattributes", ".gitignore"})
"""Names of files and folders that other programs keep in a directory."""
_BESIDE = re.compile(
    r"(changelog|citation|licen[cs]e|notice|readme)[\w-]*(\.(cff|md|rst|txt))?"
    r"|(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|trainer_state\.json|training_args\.bin"
    r"|[^.].*\.(gif|jpe?g|md|pdf|png|rst|svg|webp)",
    re.IGNORECASE,
)


def counts(name: str) -> bool:
    """Whether a file, by its name relative to a model's directory, belongs to the model.

    Everything does but documentation and a trainer's state, which are never opened: a loader that asks is refused.
    """
    path = PurePosixPath(name)
    is_note = path.name in {CARD, "MANIFEST.json"} or _BESIDE.fullmatch(path.name)
    return not (is_note or _HOUSEKEEPING.intersection(path.parts))


def combine(files: Mapping[str, str]) -> str:
    """Sha256 (hex) of the names and contents (``relative name -> sha256``) of the files that belong to the model."""
    lines = [f"{content}  ".encode() + name.encode("unicode_escape") for name, content in files.items() if counts(name)]
    return hashlib.sha256(b"".join(line + b"\n" for line in sorted(lines))).hexdigest()


def directory_entries(directory: Path, hash_file: Callable[[Path], str] | None = None) -> dict[str, list[Any]]:
    """The state (see :func:`~xalign_models.files.state_of`) and then the sha256 (hex) of each file of a checkpoint.

    Links are followed. Hashes are cached, so a file is read again only if its size, times or inode change. A copy that
    keeps the modification time (``cp -p``) still has its own change time and inode.

    Args:
        directory: The checkpoint.
        hash_file: Function that returns the sha256 (hex) of a new or changed file.

    Raises:
        OSError: A file is unreadable, or vanishes meanwhile.
    """
    directory = directory.resolve()
    record = cache_dir() / "fingerprints" / f"{hashlib.sha256(str(directory).encode()).hexdigest()}.json"
    try:
        recorded = read_json(record)
    except FileError:
        recorded = {}
    entries: dict[str, list[Any]] = {}
    settled = time.time_ns() - RACY
    for name, file in sorted(_files(directory)):
        state = state_of(file.stat())
        *recorded_state, content = recorded.get(name) or [None]
        if recorded_state != state or state[2] > settled or not isinstance(content, str):
            content = (hash_file or sha256_file)(file)
        entries[name] = [*state, content]
    known = {name: entry for name, entry in entries.items() if entry[2] <= settled}
    if known != recorded:
        with suppress(OSError, UnicodeError):  # without a writable cache files are only read more often
            atomic_write_text(record, json.dumps(known))
    return entries


def directory_fingerprint(directory: Path) -> str:
    """Fingerprint of a local checkpoint directory, from the names and contents of its files and not from its location.

    Raises:
        OSError: A file is unreadable, or vanishes meanwhile.
    """
    return combine({name: str(entry[-1]) for name, entry in directory_entries(directory).items()})


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
                if real not in above and path.name not in _HOUSEKEEPING:
                    pending.append((path, above | {real}))
            elif counts(name) and path.is_file():
                yield name, path
