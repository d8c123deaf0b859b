"""Imports go one way: no circle among modules, and none from ``xalign_models`` to ``tasks`` but the command line's."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text("utf-8"))
    for package in ("xalign_models", "tasks")
    for path in sorted((ROOT / package).rglob("*.py"))
}


def imported(statements):
    """Our modules that import statements name; of ``from package import name``, the module where ``name`` is one."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in MODULES)
        elif isinstance(statement, ast.ImportFrom) and statement.module in MODULES:
            names = (f"{statement.module}.{alias.name}" for alias in statement.names)
            yield from (name if name in MODULES else statement.module for name in names)


def test_modules_import_each_other_in_no_circle():
    graph = {name: set(imported(tree.body)) - {name} for name, tree in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES) > 100


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("xalign_models")])
def test_the_library_does_not_import_the_tasks(name):
    if not name.startswith("xalign_models.cli."):
        assert not [one for one in imported(ast.walk(MODULES[name])) if one.split(".")[0] == "tasks"]
