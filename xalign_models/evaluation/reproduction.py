"""Run a committed result again and compare: the same model on the same text gives the same scores."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.errors import FileError, ModelError, ResultsError
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.results import META
from xalign_models.evaluation.run import make_task, run_one
from xalign_models.files import read_json
from xalign_models.models.building import load_encoder
from xalign_models.specs import ModelSpec

if TYPE_CHECKING:
    from xalign_models.store import EmbeddingStore

TOLERANCE = 1e-4
"""Between a committed score and the same one now: other machines sum in another order."""


@dataclass(frozen=True)
class Row:
    """A score then and now.

    Attributes:
        split: Of the data.
        subset: Of the task.
        committed: The main score in the file.
        again: The main score now; None if the subset is gone.
    """

    split: str
    subset: str
    committed: float
    again: float | None

    @property
    def difference(self) -> float:
        """``again - committed``; infinite if there is none now."""
        return float("inf") if self.again is None else self.again - self.committed


@dataclass(frozen=True)
class Reproduction:
    """A result that was run again.

    Attributes:
        model: Its name.
        task: Its name.
        rows: Every score of the file.
        notes: What is not as it was: revisions of the model or of the text.
    """

    model: str
    task: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def differing(self, tolerance: float = TOLERANCE) -> list[Row]:
        """The scores that are farther apart than the tolerance."""
        return [row for row in self.rows if not abs(row.difference) <= tolerance]


def reproduce(path: Path, *, device: str | None = None, store: EmbeddingStore | None = None) -> Reproduction:
    """Score the model of a result file on its task again; nothing is written beside the file.

    The tasks have to be known to mteb.

    Args:
        path: ``results/<model>/<revision>/<task>.json``, with the model's metadata beside it.
        device: cpu, cuda or mps; by default the best there is.
        store: Where raw vectors are taken from; None encodes anew.

    Raises:
        ResultsError: The file is no result, or the model cannot be scored now.
        ModelError: The metadata name no model that is there.
        DataError: There is no such task.
    """
    committed, task_name = _committed(path)
    try:
        meta = read_json(path.with_name(META))
        name, arguments = str(meta["name"]), meta.get("loader_kwargs") or {}
        spec = ModelSpec.from_dict(arguments["spec"]) if "spec" in arguments else None
    except (FileError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path.with_name(META)} names no model ({error}).") from None
    try:
        encoder = load_encoder(name, device=device, store=store)
    except ModelError:
        if spec is None:
            raise
        encoder = load_encoder(spec, device=device, store=store)
    task = make_task(task_name, None).filter_eval_splits(sorted({split for split, _ in committed}))
    task.hf_subsets = [subset for subset in task.hf_subsets if any(subset == known for _, known in committed)]
    with tempfile.TemporaryDirectory(prefix="xalign-reproduce-") as folder:
        cache = SafeResultCache(Path(folder))
        cache.hardware = hardware(encoder.raw.device)
        outcome = run_one(encoder, task, cache, "none")
    if outcome.result is None:
        raise ResultsError(f"{name} cannot be scored on {task_name} now: {outcome.error}")
    again = {
        (split, entry["hf_subset"]): float(entry["main_score"])
        for split, entries in outcome.result.scores.items()
        for entry in entries
    }
    revisions = (
        ("the model", meta.get("revision"), encoder.mteb_model_meta.revision),
        ("the text", read_json(path).get("dataset_revision"), outcome.result.dataset_revision),
    )
    notes = tuple(f"{what} is of revision {now} and was of {then}" for what, then, now in revisions if then != now)
    rows = tuple(Row(*key, score, again.get(key)) for key, score in sorted(committed.items()))
    return Reproduction(name, task_name, rows, notes)


def _committed(path: Path) -> tuple[dict[tuple[str, str], float], str]:
    try:
        content: dict[str, Any] = read_json(path)
        scores = {
            (str(split), str(entry["hf_subset"])): float(entry["main_score"])
            for split, entries in content["scores"].items()
            for entry in entries
        }
        if not scores:
            raise ValueError("it has no scores")
        return scores, str(content["task_name"])
    except (FileError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"{path} is no result ({error}).") from None
