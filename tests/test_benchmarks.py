"""The benchmarks: they run where there is no mteb, and their findings become tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str, path: Path = ROOT) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_all_but_the_harness_benchmarks_need_neither_mteb_nor_datasets(tmp_path: Path) -> None:
    (tmp_path / "without_mteb.py").write_text("import sys\nsys.modules['mteb'] = sys.modules['datasets'] = None\n")
    options = ["pytest", "-p", "without_mteb", "-p", "no:cacheprovider", "-n0", "-q"]
    collected = run(*options, "--collect-only", "--ignore=benchmarks/test_harness.py", "benchmarks", path=tmp_path)
    for module in ROOT.glob("benchmarks/test_*.py"):
        assert module.name == "test_harness.py" or f"benchmarks/{module.name}" in collected
    findings = tmp_path / "findings.json"
    run(
        *options, f"--benchmark-json={findings}", "benchmarks/test_encode.py::test_repeated_texts[cpu]",
        "benchmarks/test_encode.py::test_shape", "benchmarks/test_prompt_eol.py::test_shared_prefix[cpu]",
        path=tmp_path,
    )  # fmt: skip
    info = {one["name"]: one["extra_info"] for one in json.loads(findings.read_text())["benchmarks"]}
    assert set(info) == {"test_repeated_texts[cpu]", "test_shared_prefix[cpu]"}  # those for a GPU have skipped
    assert all({"versions", "revision", "threads", "dtype", "device", "ratio"} <= set(one) for one in info.values())

    printed = run("benchmarks.table", str(findings))
    assert "## test_encode: cpu, float32" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("| repeated_texts[cpu]"))
    assert f"{info['test_repeated_texts[cpu]']['ratio']:.2f} (" in line
    assert "sentence-transformers" in line
