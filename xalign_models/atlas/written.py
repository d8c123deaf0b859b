"""Writes public results in mteb's layout, which is also ours."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xalign_models.atlas.imported import PublicResult
from xalign_models.paths import atomic_write_text
from xalign_models.results.layout import META, folder_name
from xalign_models.results.possible import MAIN


def write_results(results: Iterable[PublicResult], root: Path, source: str) -> int:
    """Write ``<root>/results/<org__name>/<revision>/<Task>.json`` of each result, and return the number of files.

    Each model's metadata records ``source``, the origin of the results.
    """
    folders: dict[Path, list[PublicResult]] = defaultdict(list)
    for result in results:
        folders[root / "results" / folder_name(result.model) / result.revision].append(result)
    for folder, group in folders.items():
        for result in group:
            atomic_write_text(folder / f"{result.task}.json", json.dumps(_content(result), ensure_ascii=False))
        if not (folder / META).exists():
            meta: dict[str, Any] = {"name": group[0].model, "revision": group[0].revision, "imported_from": source}
            if group[0].prompts:
                meta["loader_kwargs"] = {"model_prompts": group[0].prompts}
            atomic_write_text(folder / META, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    return sum(map(len, folders.values()))


def _content(result: PublicResult) -> dict[str, Any]:
    scores: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for split, subset, languages, score in result.rows:
        named = {result.metric: score} if result.metric else {}
        scores[split].append({**named, MAIN: score, "hf_subset": subset, "languages": languages})
    return {
        "dataset_revision": result.dataset_revision,
        "task_name": result.task,
        "mteb_version": result.mteb_version,
        "scores": scores,
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
