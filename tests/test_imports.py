"""The layers of the packages: a room imports only rooms below it, and strings hide no import.

A room is a folder or a module directly in ``xalign_models``, or the package ``xalign_tasks``. Imports inside functions
count. Imports for type checks alone do not, as they never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import xalign_models
from xalign_models import builtin

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root, package in ((ROOT, "xalign_models"), (ROOT / "tasks", "xalign_tasks"))
    for path in sorted((root / package).rglob("*.py"))
}
FOUNDATION = "builtin claims configuration device errors files languages lmdb_file parallel paths progress"
LAYERS = (
    FOUNDATION,
    "figures identification linalg published tables",
    "assets ranking specs thresholds vector_files",
    "plugins results store typology",
    "alignments corpora",
    "backbones portable recommend",
    "generation models",
    "analysis evaluation parity serving vectors",
    "cluster",
    "atlas boards training",
    "page xalign_tasks",
    "index",
    "cli",
)
"""The rooms from the lowest layer to the highest. Rooms of one layer are independent, but for the foundation's."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}


DYNAMIC = {
    "xalign_models",
    "xalign_models.assets.installation",
    "xalign_models.backbones.policy",
    "xalign_models.index.base",
    "xalign_models.models",
    "xalign_models.models.borrowed",
    "xalign_models.plugins.loading",
    "xalign_models.plugins.registry",
}
"""Modules that import by a computed name: of plug-ins, of built-in values, in their own room, or hidden by mteb."""


def room(module: str) -> str:
    parts = module.split(".")
    return parts[0] if len(parts) == 1 or parts[0] == "xalign_tasks" else parts[1]


def longest(dotted: str) -> str:
    """The module that ``dotted``, a module or a name in one, lies in."""
    while dotted not in FILES:
        dotted = dotted.rpartition(".")[0]
    return dotted


def imports(tree: ast.AST) -> Iterator[str]:
    """Our modules that a syntax tree imports; a public name of ``xalign_models`` stands for its own module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.orelse, []))
        elif isinstance(node, ast.Import):
            yield from (longest(alias.name) for alias in node.names if alias.name.split(".")[0] in FILES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FILES:
            public = builtin.PUBLIC if node.module == "xalign_models" else {}
            yield from (public.get(alias.name) or longest(f"{node.module}.{alias.name}") for alias in node.names)
        else:
            yield from imports(node)


def named(tree: ast.AST) -> Iterator[str]:
    """Our modules that the strings of a syntax tree name, docstrings aside; of an f-string the constant part."""
    texts = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in texts:
            for dotted in re.findall(r"\bxalign_(?:models|tasks)(?:\.\w+)*", node.value):
                yield longest(dotted)


def wrong(module: str, source: str) -> set[tuple[str, str]]:
    """Arrows of a module that lead up, sideways or, as a string, into any other room."""
    tree = ast.parse(source)
    own = room(module)
    arrows = {(module, other) for other in imports(tree) if not is_allowed(own, room(other))}
    if own != "builtin":
        arrows |= {(module, other) for other in named(tree) if room(other) not in {own, "xalign_models"}}
    return arrows


def is_allowed(own: str, other: str) -> bool:
    if {own, other} <= set(FOUNDATION.split()) or other in {own, "xalign_models"}:
        return True
    return own == "xalign_models" or LEVEL[other] < LEVEL[own]


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_room_has_a_layer():
    rooms = {room(module) for module in FILES} - {"xalign_models"}
    assert rooms == LEVEL.keys()


@pytest.mark.slow
def test_rooms_import_and_name_only_lower_rooms():
    arrows = {arrow for module, path in FILES.items() for arrow in wrong(module, path.read_text("utf-8"))}
    assert arrows == set()


def dynamic(source: str) -> set[str]:
    """Relative imports and calls that import by name."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = [ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)]
    relative = {"relative" for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
    return relative | {"__import__", "import_module", "resolve_name", "spec_from_file_location"} & {*calls}


@pytest.mark.slow
def test_only_listed_modules_import_by_a_computed_name():
    found = {module for module, path in FILES.items() if dynamic(path.read_text("utf-8"))}
    assert found <= DYNAMIC
    assert dynamic("from . import a\nimportlib.import_module(x)\n") == {"relative", "import_module"}


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others():
    trees = {module: ast.parse(path.read_text("utf-8")) for module, path in FILES.items()}
    assert circle({module: set(imports(tree)) - {module} for module, tree in trees.items()}) == []


def test_built_in_names_exist():
    places = [f"{module}:{name}" for name, module in builtin.PUBLIC.items()]
    places += [f"{module}:" for module in builtin.HOMES.values()]
    places += [place for place, _ in builtin.SOURCES.values()]
    places += [":".join(kind.rsplit(".", 1)) for kind in builtin.MODULE_TYPES]
    for module, name in (place.split(":") for place in places):
        assert re.search(rf"\b{name}\b", FILES[module].read_text("utf-8")), f"{module} has no {name}"
    assert {*builtin.PUBLIC, "__version__"} == set(xalign_models.__all__)


@pytest.mark.parametrize(
    ("module", "source", "other"),
    [
        ("xalign_models.linalg.made_up", "from xalign_models.alignments import base", "alignments.base"),
        ("xalign_models.store", "def f():\n    import xalign_models.models.building", "models.building"),
        ("xalign_models.corpora.made_up", "from xalign_models.alignments.base import Alignment", "alignments.base"),
        ("xalign_models.corpora.made_up", "from xalign_models import fit", "models.api"),
        ("xalign_models.errors", "if TYPE_CHECKING:\n    pass\nelse:\n    import xalign_models.cli", "cli"),
        ("xalign_models.plugins.made_up", "HOME = 'xalign_models.alignments.registry'", "alignments.registry"),
        ("xalign_models.plugins.made_up", "f'xalign_models.models.{name}:fit'", "models"),
        ("xalign_models.cli.made_up", "import_module('xalign_models.models.api')", "models.api"),
    ],
    ids=["up", "in a function", "sideways", "public name", "not for type checks", "string", "f-string", "string down"],
)  # fmt: skip
def test_a_planted_arrow_is_found(module, source, other):
    assert wrong(module, source) == {(module, f"xalign_models.{other}")}


def test_type_checks_messages_and_lower_rooms_are_no_arrows():
    source = (
        "if TYPE_CHECKING:\n    import xalign_models.cli\n"
        "from xalign_models.errors import DataError\nimport numpy\n"
        "raise DataError('call xalign_models.load')\n"
        "PLACE = 'xalign_models.alignments.lir'\n"
    )
    assert wrong("xalign_models.alignments.made_up", source) == set()
    assert wrong("xalign_tasks.made_up", "P = 'xalign_tasks.parallel'\nfrom xalign_models import models") == set()


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_the_design_page_lists_the_rooms_by_layer():
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    rows = re.findall(r"^\| [a-z ]+ \| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    assert [sorted(re.findall(r"\w+", row)) for row in rows] == [sorted(layer.split()) for layer in LAYERS]
