"""What identifies a checkpoint directory: the content of every file that can change what the model computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from xalign_models.assets.download import sha256_file
from xalign_models.paths import atomic_write_text, cache_dir

_SUFFIXES = frozenset({".bin", ".gguf", ".jinja", ".json", ".jsonl", ".model", ".npz", ".py", ".safetensors", ".txt"})
CARD = "xalign.json"
"""What a saved model says of itself; it names the fingerprint, so it takes no part in it."""
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


def directory_fingerprint(directory: Path) -> str:
    """The fingerprint of a local checkpoint directory: it depends on names and contents, not on where it lies.

    Hashes are remembered in the cache by path, size and modification time, so that only changed files are read again.
    """
    directory = directory.resolve()
    record = cache_dir() / "fingerprints" / f"{hashlib.sha256(str(directory).encode()).hexdigest()}.json"
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    current: dict[str, tuple[int, int, str]] = {}
    for file in sorted(directory.rglob("*")):
        name = file.relative_to(directory).as_posix()
        if not (_counts(name) and file.is_file()):
            continue
        stat = file.stat()
        size, modified, content = known.get(name, (None, None, ""))
        if (size, modified) != (stat.st_size, stat.st_mtime_ns):
            content = sha256_file(file)
        current[name] = (stat.st_size, stat.st_mtime_ns, content)
    if {name: list(entry) for name, entry in current.items()} != known:
        atomic_write_text(record, json.dumps(current))
    return combine({name: content for name, (_, _, content) in current.items()})
