"""Private names of other packages stand in the ``borrowed.py`` of a room, and nowhere else.

Every such name may vanish in a minor release. A room's own test names what is missing; this one finds the others.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

import pytest

from tests.test_imports import FILES

OURS = {"xalign_models", "xalign_tasks", "benchmarks", "tests", *sys.stdlib_module_names}
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names with an underscore that the standard library documents."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def defined(tree: ast.AST) -> Iterator[str]:
    """Names of the functions, classes, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def asked(node: ast.AST) -> str:
    """The attribute that a node looks up: ``x._name``, ``getattr(x, "_name")`` or ``x.__dict__["_name"]``."""
    match node:
        case ast.Attribute(attr=str(name)):
            return name
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
        case ast.Subscript(value=ast.Attribute(attr="__dict__"), slice=ast.Constant(value=str(name))):
            return name
    return ""


def borrowed(source: str, ours: Collection[str] = ()) -> Iterator[str]:
    """Private names of other packages that a module imports or looks up.

    Args:
        source: The module.
        ours: Names that any module of ours defines. An attribute of an imported package is never one of them.
    """
    tree = ast.parse(source)
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                dotted = f"{origin}{alias.name}"
                if dotted.split(".", maxsplit=1)[0] not in OURS:
                    packages.add(alias.asname or alias.name.split(".")[0])
                    yield from filter(is_private, dotted.split("."))
    for node in ast.walk(tree):
        if is_private(name := asked(node)):
            root = ast.unparse(node).split(".")[0]
            if root in packages or name not in ours:
                yield name


@pytest.mark.slow
def test_private_names_of_other_packages_are_in_a_borrowed_module():
    ours = {name for path in FILES.values() for name in defined(ast.parse(path.read_text("utf-8")))}
    found = {
        (module, name)
        for module, path in FILES.items()
        if path.name != "borrowed.py"
        for name in borrowed(path.read_text("utf-8"), ours)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from mteb.get_tasks import _TASKS_REGISTRY", "_TASKS_REGISTRY"),
        ("from torch._inductor import config", "_inductor"),
        ("import torch._dynamo", "_dynamo"),
        ("def f():\n    import torch\n    torch.ops.mkldnn._linear(1)", "_linear"),
        ("from peft import Model as M\nM._load(3)", "_load"),
        ("from peft import Model as M\nM._ours(3)", "_ours"),
        ("def f(model):\n    model._route(1)", "_route"),
        ("getattr(model, '_route', None)", "_route"),
        ("module.__dict__['_route']", "_route"),
    ],
)
def test_a_planted_name_is_found(source, name):
    assert list(borrowed(source, {"_ours"})) == [name]


def test_our_own_private_names_and_documented_ones_are_not():
    source = "import sys\nfrom torch import nn\nfrom xalign_models.a import _b\nrow._asdict(); nn.Module.__init__\n"
    assert list(borrowed(f"{source}self._weights = nn.Linear\n", {"_weights"})) == []
