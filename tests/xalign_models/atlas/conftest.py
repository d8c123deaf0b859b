"""Public results of made-up models, in the repository's layout and as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

NTREX = "NTREXBitextMining"


def entry(subset: str, languages: list[str], score: float, metric: str = "f1") -> dict:
    return {"hf_subset": subset, "languages": languages, "main_score": score, metric: score}


@pytest.fixture
def write_result(tmp_path: Path) -> Callable[..., Path]:
    """Writes ``results/<org__name>/<revision>/<task>.json`` below ``tmp_path`` and returns its path."""

    def write(
        model: str,
        scores: Mapping[str, float],
        *,
        task: str = NTREX,
        revision: str = "r1",
        text: str = "d1",
        version: str = "1.2.3",
        metric: str = "f1",
    ) -> Path:
        path = tmp_path / "results" / model.replace("/", "__") / revision / f"{task}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = [
            entry(subset, [code.replace("_", "-") for code in subset.split("-")], score, metric)
            for subset, score in scores.items()
        ]
        content = {"dataset_revision": text, "task_name": task, "mteb_version": version, "scores": {"test": entries}}
        path.write_text(json.dumps(content))
        return path

    return write
