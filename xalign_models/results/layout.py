"""mteb's layout of results, which is also ours: names of folders and files.

``results/<org__name>/<revision>/`` has a file ``<Task>.json`` per task, ``model_meta.json`` and ``run_settings.jsonl``.
"""

from __future__ import annotations

from pathlib import Path

from xalign_models.errors import ResultsError

META, SETTINGS = "model_meta.json", "run_settings.jsonl"


def results_folder(root: Path) -> Path:
    """The folder of results below a root; the root itself if it has no folder ``results``."""
    return root / "results" if (root / "results").is_dir() else root


def result_files(root: Path) -> list[Path]:
    """The files of results below a root, of any kind that ``read_results`` takes, sorted in each folder.

    Raises:
        ResultsError: There are no results.
    """
    folders = [folder for folder in (root / "results", root / "remote" / "results") if folder.is_dir()] or [root]
    paths = [
        path
        for folder in folders
        for path in sorted(folder.glob("*/*/*.json"), key=str)
        if path.name not in {META, "xalign.json"} and not path.name.startswith(".") and "__" in path.parts[-3]
    ]
    if not paths:
        raise ResultsError(f"No results under {folders[0]}; score models with `xalign run`, or name another folder.")
    return paths


def folder_name(model: str) -> str:
    """The name of a model's folder: ``org__name``."""
    return model.replace("/", "__").replace(" ", "_")
