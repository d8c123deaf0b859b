"""A tree of results as the runner leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from xalign_models.evaluation.items import full_folder, keep_outcomes, save_items
from xalign_models.specs import BackboneSpec, ModelSpec

Put = Callable[..., Path]


def codes(subset: str) -> list[str]:
    return [one.replace("_", "-") for one in subset.split("-")]


def spec_of(baseline: str) -> dict[str, Any]:
    """The spec of a model that has this unaligned one."""
    return ModelSpec(BackboneSpec(baseline.removeprefix("xalign/plain__"), "some/model")).to_dict()


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
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {
                metric: value,
                "main_score": value,
                "hf_subset": subset,
                "mteb_version": "2",
                "languages": (languages or {}).get(subset, codes(subset)),
            }
            for subset, value in scores.items()
        ]
        when = datetime.fromisoformat(date).timestamp() if date else None
        result = {"task_name": task, "dataset_revision": data, "date": when, "scores": {"test": entries}}
        (folder / f"{task}.json").write_text(json.dumps(result))
        arguments = {"spec": spec_of(baseline)} if baseline else {}
        meta = {"name": model, "training_datasets": list(trained), "loader_kwargs": arguments}
        (folder / "model_meta.json").write_text(json.dumps(meta))
        if ranks:
            save_items(full_folder(folder), task, ranks)
            keep_outcomes(folder, task, scores)
        return folder

    return write
