"""Files as damage or malice would leave them: one place of a good file is changed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 10**400, -(10**400), 2**63, 1.5, -0.0, float("nan"), float("inf"), "", "x", "0.5", "\x00",
    "\x1b[31mred", "\u202ebidi", "<script>", "a|b\nc", "../../x", "a" * 5000, "\ud800", [], {}, [[]], [None], [1, "x"],
    {"a": 1}, {"": []},
)  # fmt: skip
"""Values to put in the place of any other value."""


def _deep() -> str:
    return "[" * 200 + "]" * 200


def _elsewhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(change(path.read_bytes())))


def void(_: object) -> None:
    """Nothing."""


WHOLE: dict[str, Callable[[Path], None]] = {
    "empty": _bytes(lambda content: b""),
    "cut off": _bytes(lambda content: content[: len(content) // 2]),
    "a byte-order mark": _bytes(lambda content: b"\xef\xbb\xbf" + content),
    "CRLF": _bytes(lambda content: content.replace(b"\n", b"\r\n")),
    "CR": _bytes(lambda content: content.replace(b"\n", b"\r")),
    "UTF-16": _bytes(lambda content: content.decode("latin-1").encode("utf-16")),
    "NUL bytes": _bytes(lambda content: content + b"\0" * 9),
    "no UTF-8": _bytes(lambda content: content.replace(b'"', b'"\xff', 1)),
    "twice": _bytes(lambda content: content + content),
    "deep": _bytes(lambda content: _deep().encode()),
    "very deep": _bytes(lambda content: b"[" * 200_000),
    "a number of many digits": _bytes(lambda content: b"1" * 10_000),
    "missing": Path.unlink,
    "a pipe": _pipe,
    "a device": _elsewhere,
    "a folder": _folder,
}
"""Changes to a file as a whole, whatever its content."""


def spoil(path: Path, rng: random.Random) -> str:
    """Change one place of a file; what was done, for messages.

    Args:
        path: JSON, lines of JSON, or anything else, of which a byte is changed.
        rng: Chooses the place and the change.
    """
    if rng.random() < 0.2:
        name = rng.choice(sorted(WHOLE))
        WHOLE[name](path)
        return name
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        number = rng.randrange(len(lines))
        content = json.loads(lines[number])
        said = _change(content, rng)
        lines[number] = json.dumps(content)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return said
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        said = _change(content, rng)
        path.write_text(json.dumps(content), encoding="utf-8")
        return said
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= rng.randrange(1, 256)
    path.write_bytes(bytes(data))
    return f"byte {place}"


def _change(content: Any, rng: random.Random) -> str:
    """Replace, remove or rename one value, at any depth."""
    where: list[str] = []
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = rng.choice(keys)
        where.append(str(key))
        inner = content[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            content = inner
            continue
        kind = rng.random()
        if kind < 0.15 and isinstance(content, dict):
            del content[key]
            return f"without {'/'.join(where)}"
        if kind < 0.25 and isinstance(content, dict):
            content[str(rng.choice(["", "\x00", "\ud800", "\u202e", "x", "a\nb"]))] = content.pop(key)
            return f"{'/'.join(where)} renamed"
        content[key] = rng.choice(VALUES)
        return f"{'/'.join(where)} = {str(content[key])[:30]!r}"
