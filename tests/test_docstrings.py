"""Docstrings: their first words, and examples that run.

They run in an empty folder with parallel text in ``parallel/``. There the name all-MiniLM-L6-v2 gives a random model
of 16 dimensions, so examples show shapes rather than values.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
import json
import pkgutil
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import xalign_models
from tests.registries import restored
from tests.test_imports import FILES, ROOT
from xalign_models import plugins

SOURCES = sorted(
    path
    for folder in ("xalign_models", "tasks/xalign_tasks", "benchmarks", "docs/tools")
    for path in (ROOT / folder).rglob("*.py")
)
OPENING = re.compile(r"\s*(What|Those|Of|That)\b")
PUBLIC = sorted(
    {f"xalign_models:{name}" for name in xalign_models.__all__ if name != "__version__"}
    | set(re.findall(r"^::: ([\w.]+)", (ROOT / "docs" / "api.md").read_text("utf-8"), re.M))
)
REGISTRIES = (plugins.ALIGNMENTS, plugins.BACKBONES, plugins.CORPORA, plugins.MODULES, plugins.SOURCES, plugins.TASKS)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of modules, classes, functions and variables."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", [])
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


EXAMPLES = {
    f"{module}:{line}": text
    for module, path in FILES.items()
    for line, text in docstrings(path.read_text("utf-8"))
    if ">>>" in text
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_docstring_names_its_subject_first(path):
    found = [(line, text.splitlines()[0]) for line, text in docstrings(path.read_text("utf-8")) if OPENING.match(text)]
    assert not found, "\n".join(f"{path}:{line}: {text}" for line, text in found)


@pytest.mark.parametrize("first", ["What it is.", " Those of a file.", "Of the model.", "That which stays."])
def test_a_planted_opening_is_found(first):
    assert OPENING.match(first)
    assert not OPENING.match("Whatever, Thatcher, Often: a vector (d,).")
    assert [text for _, text in docstrings(f'class A:\n    x = 1\n    """{first}"""\n')] == [first]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example(name):
    text = pkgutil.resolve_name(name).__doc__ or ""
    assert "Examples:\n" in text, f"{name} has no section `Examples:`"
    assert ">>>" in text.partition("Examples:\n")[2]


@pytest.fixture
def stand_in(workdir: Path, tiny_model: Path, write_text) -> Path:
    """Install a random model as the asset all-minilm-l6-v2, and write parallel text."""
    asset = workdir / "cache" / "assets" / "all-minilm-l6-v2"
    shutil.copytree(tiny_model, asset)
    files = {
        file.relative_to(asset).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in asset.rglob("*")
        if file.is_file()
    }
    (asset / "MANIFEST.json").write_text(json.dumps({"files": files}))
    write_text(workdir / "parallel", 40)
    return workdir


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("place", EXAMPLES)
def test_an_example_runs_and_prints_what_it_says(place):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[place], {}, place, None, 0)
    report: list[str] = []
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(restored(registry))
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=report.append)
    assert runner.tries
    assert not runner.failures, "".join(report)
