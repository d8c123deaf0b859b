"""The table of mutation testing counts what mutmut left."""

from __future__ import annotations

import json
from pathlib import Path

from tests.survivors import table


def test_counts_by_module(tmp_path: Path) -> None:
    for name, ended in (
        ("a.py", {"x1": 1, "x2": 0, "x3": None}),
        ("b/c.py", {"y1": -24, "y2": 33, "y3": 0}),
        ("d.py", {}),
    ):
        path = tmp_path / f"{name}.meta"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"exit_code_by_key": ended}))
    found, survivors = table(tmp_path)
    assert found.splitlines()[2:] == [
        "| a.py | 3 | 1 | 0 | 1 | 0 | 1 |",
        "| b/c.py | 3 | 0 | 1 | 1 | 1 | 0 |",
        "| all | 6 | 1 | 1 | 2 | 1 | 1 |",
    ]
    assert survivors == ["x2", "y3"]
