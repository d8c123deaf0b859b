"""mteb's result cache with atomic writes; unreadable results are set aside."""

import datetime
import hashlib
import json
import logging
import platform
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mteb.abstasks import AbsTask
from mteb.cache import ResultCache
from mteb.models.model_meta import ModelMeta
from mteb.results import TaskResult

from xalign_models import __version__
from xalign_models.device import each
from xalign_models.errors import FileError, ResultsError
from xalign_models.files import read_json, read_log, set_aside
from xalign_models.paths import atomic_write_text, in_turn, one_at_a_time
from xalign_models.results.items import full_folder, keep_outcomes, outcomes_path, read_outcomes
from xalign_models.results.layout import META, SETTINGS
from xalign_models.results.reading import check_main_scores, read_result

logger = logging.getLogger(__name__)

_STAGED = ".staged-"
PACKAGES = ("mteb", "sentence-transformers", "transformers", "tokenizers", "torch", "numpy", "scipy", "scikit-learn")


class SafeResultCache(ResultCache):
    """Results under ``<root>/results`` in mteb's layout.

    A model's folder has a file of scores per task, ``model_meta.json`` with the model's whole spec in
    ``loader_kwargs``, ``run_settings.jsonl`` with versions and hardware by task, and ``items/``.

    Args:
        root: The parent folder of ``results/``.

    Attributes:
        hardware: Hardware of the next saved results; see :func:`hardware`.
        costs: Returns a model's measured costs, to record with the next saved results.

    Raises:
        ResultsError: The root cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.hardware = ""
        self.costs: Callable[[], Mapping[str, Any]] = dict
        try:
            super().__init__(root)  # makes the root
            (root / "results").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"Cannot write results to {root}: {error.strerror}; choose another --output.") from None

    def get_task_result_path(self, *args: Any, **kwargs: Any) -> Path:
        """The file of a result in mteb's layout.

        Raises:
            ResultsError: A name or revision leads outside the folder of results.
        """
        path = Path(super().get_task_result_path(*args, **kwargs))
        for part in path.relative_to(self.cache_path).parts:
            if part in {".", ".."} or not part.isprintable():
                raise ResultsError(f"{part!r} cannot name a file of results; rename the model or task.")
        return path

    def path_of(self, task: str, meta: ModelMeta) -> Path:
        """The file of a result."""
        return self.get_task_result_path(task, meta)

    def turn(self, task: str, meta: ModelMeta) -> AbstractContextManager[None]:
        """Keep other processes from overwriting a model's result on a task with other subsets."""
        name = hashlib.sha256(str(self.path_of(task, meta).relative_to(self.cache_path)).encode()).hexdigest()[:32]
        waiting = f"Another process is scoring {meta.name} on {task}; this one waits for it."
        return in_turn(Path(self.cache_path) / "results" / f".{name}.lock", waiting)

    def save_to_cache(
        self, task_result: TaskResult, model_name: str | ModelMeta, model_revision: str | None = None, **kwargs: Any
    ) -> None:
        """Save as mteb does, but write to a temporary folder and move, scores last."""
        task = task_result.task_name
        final = self.get_task_result_path(task, model_name, model_revision).parent
        final.mkdir(parents=True, exist_ok=True)
        entries = [entry for entries in task_result.scores.values() for entry in entries]
        with one_at_a_time(final):  # the settings of a model's tasks are one file
            for left_over in final.glob(f"{_STAGED}*"):  # from a killed run
                if time.time() - left_over.stat().st_mtime > 3600:
                    shutil.rmtree(left_over, ignore_errors=True)
            keep_outcomes(final, task, {entry["hf_subset"]: entry["main_score"] for entry in entries})
            with tempfile.TemporaryDirectory(prefix=_STAGED, dir=final) as staging:
                staged = ResultCache(staging)
                directory = Path(staged.get_task_result_path(task, model_name, model_revision)).parent
                directory.mkdir(parents=True)
                _copy_settings(final / SETTINGS, directory / SETTINGS)  # mteb merges into them
                staged.save_to_cache(task_result, model_name, model_revision, **kwargs)
                self._complete_settings(directory / SETTINGS, task)
                if isinstance(model_name, ModelMeta):
                    (directory / META).write_text(meta_text(model_name), encoding="utf-8")
                result = directory / f"{task}.json"
                result.write_text(compact(json.loads(result.read_text(encoding="utf-8"))), encoding="utf-8")
                for file in sorted(directory.iterdir(), key=lambda file: file == result):
                    file.replace(final / file.name)

    def _complete_settings(self, path: Path, task: str) -> None:
        """Add the versions of other packages, the measured costs and the hardware to a task's lines."""
        if not path.is_file():  # mteb writes no settings if no subset could be scored
            return
        entries, _ = read_log(path)
        for entry in entries:
            if entry["task"] == task:
                entry["version"] |= versions()
                entry |= {**self.costs(), "hardware": self.hardware}
                entry["subsets"] = entry.pop("subsets")  # the long list stays last
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")

    def keep_only_usable(self, task: AbsTask, meta: ModelMeta) -> Callable[[], None]:
        """Rename a result that is unreadable, impossible or of other text, so that the task runs again; keep all files.

        Its outcomes by item are renamed too. Damaged or missing metadata of a model is written again. If only the items
        are damaged, only they are set aside.

        Returns:
            A function to call after the run; it puts a result of other text back unless there is a new one, and
            otherwise says where it is.
        """
        path = self.path_of(task.metadata.name, meta)
        moved: dict[Path, Path] = {}
        reason, of_other_text = "", False

        def put_back() -> None:
            if path.is_file() and moved:
                logger.warning("%s %s; it is kept as %s.", path, reason, moved[path].name)
            elif not path.is_file():
                for file, aside in moved.items():
                    aside.replace(file)

        if not path.is_file():
            return put_back
        try:
            revision = TaskResult.from_disk(path).dataset_revision
            check_main_scores(read_result(path))
        except FileError as error:
            reason = f"is not a complete result ({error})"
        except Exception as error:
            reason = f"is unreadable ({type(error).__name__})"
        else:
            if revision == task.metadata.revision:
                _complete_meta(path.parent / META, meta)
                items = outcomes_path(path.parent, path.stem)
                if items.is_file() and not read_outcomes(items):
                    _rename(items)
                return put_back
            of_other_text = True
            reason = f"had data revision {revision}, but the data here has {task.metadata.revision}"
        files = outcomes_path(path.parent, path.stem), full_folder(path.parent) / f"{path.stem}.npz", path
        asides = {file: _rename(file) for file in files if file.is_file()}
        if of_other_text:
            moved |= asides  # nothing is said of a result that is put back
        else:
            logger.warning("%s %s; it is kept as %s, and the task runs again.", path, reason, asides[path].name)
        return put_back


def _copy_settings(path: Path, copy: Path) -> None:
    """Copy the readable lines; a file with damaged lines is set aside, because mteb cannot read it."""
    entries, damaged = read_log(path)
    usable = [entry for entry in entries if _is_setting(entry)]
    if lost := damaged + len(entries) - len(usable):
        set_aside(path, f"{path} has {lost} damaged lines.")
    if usable:
        copy.write_text("".join(json.dumps(entry) + "\n" for entry in usable), encoding="utf-8")


def _is_setting(entry: Mapping[str, Any]) -> bool:
    lists = (entry.get("splits"), entry.get("subsets"))
    texts = all(isinstance(values, list) and all(isinstance(text, str) for text in values) for values in lists)
    mappings = all(isinstance(entry.get(key), dict) for key in ("version", "encode_kwargs"))
    return texts and mappings and isinstance(entry.get("task"), str)


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of the packages that affect scores."""
    return {"python": platform.python_version(), "xalign": __version__, **{p: version(p) for p in PACKAGES}}


def compact(result: dict[str, Any]) -> str:
    """A result as JSON with a line per subset, for readable differences.

    Subsets name mteb's version only if it differs from the file's; mteb fills in the others when it reads the file.
    """
    splits, common = [], result.get("mteb_version")
    for split, entries in result["scores"].items():
        lines = [
            json.dumps({k: v for k, v in entry.items() if (k, v) != ("mteb_version", common)}) for entry in entries
        ]
        splits.append(f"  {json.dumps(split)}: [\n   " + ",\n   ".join(lines) + "\n  ]")
    fields = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items() if key != "scores"]
    return "{\n" + ",\n".join([*fields, ' "scores": {\n' + ",\n".join(splits) + "\n }"]) + "\n}\n"


def _complete_meta(path: Path, meta: ModelMeta) -> None:
    """Write ``model_meta.json`` if it is missing or damaged."""
    with suppress(FileError, KeyError):
        if read_json(path)["name"] == meta.name:
            return
    atomic_write_text(path, meta_text(meta))


def meta_text(meta: ModelMeta) -> str:
    """A model's metadata as in mteb, but reproducible: without local paths, with sorted data sets."""
    portable = {field: without_folders(getattr(meta, field)) for field in ("loader_kwargs", "training_datasets")}
    data = meta.model_copy(update=portable).to_dict()
    data["training_datasets"] = data["training_datasets"] and sorted(data["training_datasets"])
    return json.dumps(data, default=str, indent=1) + "\n"


def without_folders(value: Any) -> Any:
    """The value with file names in place of local paths, which mean nothing on another machine."""
    if isinstance(value, Mapping):
        return {without_folders(key): without_folders(item) for key, item in value.items()}
    if isinstance(value, set):
        return {without_folders(item) for item in value}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if not isinstance(value, str):
        return value
    # a path may also be part of ``kind:path?option=value`` or ``name+kind:path``
    return re.sub(r"[^:+?]+", lambda part: _last(part[0]), _last(value))


def _last(text: str) -> str:
    """The last part of an existing path; any other text unchanged."""
    try:
        return Path(text).name if "/" in text and Path(text).exists() else text
    except OSError:  # a prompt, too long for a path
        return text


def _rename(path: Path) -> Path:
    """Rename a file to a name that no code reads, and return its new path."""
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    return path.rename(path.with_name(f"{path.name}.aside-{stamp}"))


def hardware(device: str) -> str:
    """Description of one or several devices of this machine, with equal ones counted."""
    import torch

    names = Counter(
        torch.cuda.get_device_name(name) if name.startswith("cuda") else f"{name} {platform.machine()}"
        for name in each(device)
    )
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items())
