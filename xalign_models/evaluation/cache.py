"""mteb's result cache, made safe: results are written whole or not at all, and unreadable ones are set aside."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.cache import ResultCache
from mteb.results import TaskResult

from xalign_models import __version__
from xalign_models.assets import CARD
from xalign_models.errors import ResultsError
from xalign_models.paths import atomic_file, atomic_write_text

if TYPE_CHECKING:
    import numpy.typing as npt
    from mteb.abstasks import AbsTask
    from mteb.models.model_meta import ModelMeta

logger = logging.getLogger(__name__)

PACKAGES = ("mteb", "sentence-transformers", "transformers", "torch", "numpy", "scipy", "scikit-learn")


class SafeResultCache(ResultCache):
    """Results under ``<root>/results`` in mteb's layout.

    Raises:
        ResultsError: The root cannot be written.
    """

    def __init__(self, root: Path) -> None:
        try:
            super().__init__(root)  # makes the root
            (root / "results").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"Cannot write results to {root}: {error.strerror}; choose another --output.") from None

    def path_of(self, task: str, meta: ModelMeta) -> Path:
        """Where a result lies or will lie."""
        return Path(self.get_task_result_path(task, meta))

    def save_to_cache(
        self, task_result: TaskResult, model_name: str | ModelMeta, model_revision: str | None = None, **kwargs: Any
    ) -> None:
        """As mteb does, but written elsewhere and moved: a killed run leaves the old file or the new one, whole."""
        final = Path(self.get_task_result_path(task_result.task_name, model_name, model_revision)).parent
        final.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".staged-", dir=final) as staging:
            staged = ResultCache(staging)
            directory = Path(staged.get_task_result_path(task_result.task_name, model_name, model_revision)).parent
            directory.mkdir(parents=True)
            if (settings := final / "run_settings.jsonl").is_file():
                shutil.copy(settings, directory)  # mteb merges into it
            named = model_name if isinstance(model_name, str) else _portable(model_name)
            staged.save_to_cache(task_result, named, model_revision, **kwargs)
            for file in directory.iterdir():
                file.replace(final / file.name)

    def keep_only_usable(self, task: AbsTask, meta: ModelMeta) -> None:
        """Rename a result that is unreadable or of other text, so that the task is run again; nothing is deleted.

        Its outcomes item by item go with it.
        """
        path = self.path_of(task.metadata.name, meta)
        if not path.is_file():
            return
        try:
            revision = TaskResult.from_disk(path).dataset_revision
        except Exception as error:
            reason = f"is unreadable ({type(error).__name__})"
        else:
            if revision == task.metadata.revision:
                return
            reason = f"is of data revision {revision}, and the data at hand are {task.metadata.revision}"
        _set_aside(path, reason)

    def write_card(self, meta: ModelMeta, baseline: str | None, where: str) -> None:
        """Put what made the results beside them: model, spec, training if any, versions, date, and where it was."""
        made = _portable(meta).loader_kwargs
        card = {
            "name": meta.name,
            "revision": meta.revision,
            "baseline": baseline,
            "spec": made.get("spec"),
            **({"training": training} if (training := made.get("training")) else {}),
            "versions": {
                "python": platform.python_version(),
                "xalign": __version__,
                **{p: version(p) for p in PACKAGES},
            },
            "hardware": where,
            "date": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps(card, indent=2, ensure_ascii=False, default=str) + "\n"
        atomic_write_text(self.path_of("task", meta).parent / CARD, text)


def save_items(folder: Path, task: str, items: dict[str, npt.NDArray[Any]]) -> None:
    """Keep outcomes item by item beside the scores: ``<folder>/<task>.npz``, an array per subset.

    Subsets that an earlier run left there are kept.
    """
    path = folder / f"{task}.npz"
    if path.is_file():
        with np.load(path) as old:
            items = {**dict(old), **items}
    with atomic_file(path) as temporary, temporary.open("wb") as handle:
        arrays: dict[str, Any] = {**items}
        np.savez_compressed(handle, **arrays)


def _portable(meta: ModelMeta) -> ModelMeta:
    """The same with files and directories called by their names: where they lie says nothing on another machine."""
    return meta.model_copy(
        update={field: _called(getattr(meta, field)) for field in ("loader_kwargs", "training_datasets")}
    )


def _called(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_called(key): _called(one) for key, one in value.items()}
    if isinstance(value, set):
        return {_called(one) for one in value}
    if isinstance(value, list | tuple):
        return [_called(one) for one in value]
    if not isinstance(value, str):
        return value
    whole = _last(value)
    # else of ``kind:path?option=value`` and ``name+kind:path``
    return whole if whole != value else re.sub(r"[^:+?]+", lambda part: _last(part[0]), value)


def _last(text: str) -> str:
    """The last part of a path that is there; any other text as it is."""
    try:
        return Path(text).name if "/" in text and Path(text).exists() else text
    except OSError:  # a prompt, too long for a path
        return text


def _set_aside(path: Path, reason: str) -> None:
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    aside = path.with_name(f"{path.name}.aside-{stamp}")
    path.rename(aside)
    items = path.parent / "items" / f"{path.stem}.npz"
    if items.is_file():
        items.rename(items.with_name(f"{items.name}.aside-{stamp}"))
    logger.warning("%s %s; it is kept as %s and the task is run again.", path, reason, aside.name)


def hardware(device: str) -> str:
    """What a device of this machine is."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{device} {platform.machine()}"
