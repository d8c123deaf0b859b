"""How the packages import each other: one way, without a circle, and the library never its tasks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root, package in ((ROOT, "xalign_models"), (ROOT / "tasks", "xalign_tasks"))
    for path in sorted((root / package).rglob("*.py"))
}


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """The modules of ours that a module imports, inside functions too; not what is imported for type checks alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (one for other in node.orelse for one in imports(module, ast.Module([other], [])))
        elif isinstance(node, ast.Import):
            yield from (longest(alias.name) for alias in node.names if alias.name.split(".")[0] in FILES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FILES:
            yield from (longest(f"{node.module}.{alias.name}") for alias in node.names)
        else:
            yield from imports(module, node)


def longest(dotted: str) -> str:
    """The module that ``dotted``, a module or a name in one, lies in."""
    while dotted not in FILES:
        dotted = dotted.rpartition(".")[0]
    return dotted


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {
        module: set(imports(module, ast.parse(path.read_text("utf-8")))) - {module} for module, path in FILES.items()
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others(graph):
    assert circle(graph) == []


def test_the_library_does_not_know_its_tasks(graph):
    back = {
        module
        for module, others in graph.items()
        if module.startswith("xalign_models")
        if any(other.split(".")[0] == "xalign_tasks" for other in others)
    }
    assert back == set()


def test_a_circle_and_an_import_in_a_function_are_seen():
    source = (
        "if TYPE_CHECKING:\n    import xalign_tasks.base\n"
        "def f():\n    from xalign_tasks import registration\n    import numpy\n"
    )
    assert set(imports("xalign_models.made_up", ast.parse(source))) == {"xalign_tasks.registration"}
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})
