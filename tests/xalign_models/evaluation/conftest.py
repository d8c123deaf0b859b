"""A tree of results as the runner leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Put = Callable[..., Path]


def codes(subset: str) -> list[str]:
    return [one.replace("_", "-") for one in subset.split("-")]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write one result and return its folder; scores are fractions by subset, ranks arrays by subset."""

    def write(
        model: str,
        task: str,
        scores: dict[str, float],
        *,
        revision: str = "r1",
        date: str | None = "2026-11-21T10:00:00+00:00",
        baseline: str | None = None,
        trained: tuple[str, ...] = (),
        data: str = "d1",
        ranks: dict[str, Any] | None = None,
        languages: dict[str, list[str]] | None = None,
        metric: str = "precision_at_1",
    ) -> Path:
        folder = tmp_path / "results" / model.replace("/", "__", 1) / revision
        (folder / "items").mkdir(parents=True, exist_ok=True)
        entries = [
            {metric: value, "main_score": value, "hf_subset": subset, "mteb_version": "2",
             "languages": (languages or {}).get(subset, codes(subset))}
            for subset, value in scores.items()
        ]  # fmt: skip
        result = {"task_name": task, "dataset_revision": data, "evaluation_time": 1.0, "scores": {"test": entries}}
        (folder / f"{task}.json").write_text(json.dumps(result))
        (folder / "model_meta.json").write_text(json.dumps({"name": model, "training_datasets": list(trained)}))
        if date:
            card = {"name": model, "revision": revision, "baseline": baseline, "spec": {}, "date": date}
            (folder / "xalign.json").write_text(json.dumps(card))
        if ranks:
            np.savez_compressed(folder / "items" / f"{task}.npz", **ranks)
        return folder

    return write
