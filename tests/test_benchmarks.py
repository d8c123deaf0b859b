"""The benchmarks run without mteb, and their findings become tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT = """
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    Path(__file__).with_name("collected").write_text("\\n".join({item.path.name for item in items}))
known = Distribution.from_name.__func__
def from_name(cls, name):
    if name in ("mteb", "datasets"):
        raise PackageNotFoundError(name)
    return known(cls, name)
Distribution.from_name = classmethod(from_name)
sys.modules["mteb"] = sys.modules["datasets"] = None
from benchmarks import shapes
whole = shapes.mixed_texts
shapes.mixed_texts = lambda n: whole(n // 8)
"""
"""A plug-in that hides both packages, shortens the texts, and writes the collected modules to a file."""


def run(*arguments: str, path: Path = ROOT) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    environment.pop("PYTEST_XDIST_WORKER", None)  # pytest-benchmark times nothing in a worker
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_only_benchmarks_of_tasks_need_mteb_and_datasets(tmp_path: Path) -> None:
    (tmp_path / "without_mteb.py").write_text(WITHOUT)
    findings = tmp_path / "findings.json"
    options = ["pytest", "-p", "without_mteb", "-p", "no:cacheprovider", "-n0", "-q", f"--benchmark-json={findings}"]
    run(*options, "benchmarks", "-k", "test_repeated_texts or test_shape or test_shared_prefix", path=tmp_path)
    modules = {path.name for path in ROOT.glob("benchmarks/test_*.py")}
    assert modules - {*(tmp_path / "collected").read_text().split()} == {
        "test_harness.py"
    }  # it measures tasks, which are mteb's
    info = {one["name"]: one["extra_info"] for one in json.loads(findings.read_text())["benchmarks"]}
    assert set(info) == {"test_repeated_texts[cpu]", "test_shared_prefix[cpu]"}  # GPU benchmarks are skipped
    assert all({"versions", "revision", "threads", "dtype", "device", "ratio"} <= set(one) for one in info.values())

    printed = run("docs.tools.throughput", str(findings))
    assert "## test_encode: cpu, float32" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("| repeated_texts[cpu]"))
    assert f"{info['test_repeated_texts[cpu]']['processor_ratio']:.2f} (" in line
    assert "sentence-transformers" in line


@pytest.mark.parametrize("written", [None, "{", "[]", '{"benchmarks": []}'])
def test_a_file_without_findings_is_one_line(written: str | None, tmp_path: Path) -> None:
    findings = tmp_path / "findings.json"
    if written is not None:
        findings.write_text(written)
    done = subprocess.run(
        [sys.executable, "-m", "docs.tools.throughput", findings], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"{re.escape(str(findings))}: .*--benchmark-json=.*\n", done.stderr)
