"""Streams the rows of one JSON file, whether it is a list, a map or one record per line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import ijson

from xalign_models.errors import DataError

_HEAD = 1 << 16


def rows(path: Path, ids: Collection[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield a file's rows one at a time; memory does not grow with the file, whatever its layout.

    Args:
        path: A ``.json`` or ``.jsonl`` file, in UTF-8 with or without a byte order mark. A list and lines hold objects,
            a map holds any values.
        ids: The fields that hold a record's id, which tell a single line that is a record from a map.

    Yields:
        Where the row is (for messages), the map's key (None in a list and in lines), the row.

    Raises:
        DataError: The file is empty, is not UTF-8 or not JSON, or a row of a list or a line is not an object.
    """
    layout, name = _layout(path, ids), str(path)
    try:
        if layout == "lines":
            with path.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield _checked(f"{name}, line {number}", json.loads(line))
            return
        with path.open("rb") as stream:
            stream.seek(len(codecs.BOM_UTF8) if stream.read(3) == codecs.BOM_UTF8 else 0)
            if layout == "map":
                for key, value in ijson.kvitems(stream, "", use_float=True):
                    yield f"{name}, key {key!r}", key, value
            else:
                for number, value in enumerate(ijson.items(stream, "item", use_float=True), 1):
                    yield _checked(f"{name}, row {number}", value)
    except (ijson.JSONError, ValueError) as error:  # ValueError: of json, and of UTF-8
        at = f", line {number}" if layout == "lines" and isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{at} is not JSON in UTF-8 (a list, a map, or a record per line): {error}") from error


def _checked(where: str, row: Any) -> tuple[str, None, dict[str, Any]]:
    if not isinstance(row, dict):
        raise DataError(f"{where} holds a {type(row).__name__}; it must be an object with an id.")
    return where, None, row


def _layout(path: Path, ids: Collection[str]) -> str:
    """``"list"``, ``"map"`` or ``"lines"``, told from the first 64 KiB and not from the file's name."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    if not head:
        raise DataError(f"{path} is empty; it must hold a JSON list, a JSON map, or a record per line.")
    if head.startswith(b"["):
        return "list"
    first, _, rest = head.partition(b"\n")
    try:
        record = json.loads(first)
    except ValueError:
        return "map"  # or no JSON at all, which its parser will say
    is_record = isinstance(record, dict) and any(isinstance(record.get(name), str | int) for name in ids)
    return "lines" if is_record or rest.strip() else "map"
