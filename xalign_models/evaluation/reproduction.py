"""Run a committed result again and compare: the same model on the same text gives the same scores.

Most of a run's time goes into encoding, above all fit text. So vectors that the store has
are taken from it, and one in :data:`SAMPLE` of them is encoded again and compared; or else all are made anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, ModelError, ResultsError
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.results import META
from xalign_models.evaluation.run import languages_of, make_task, run_one
from xalign_models.files import is_number, read_json
from xalign_models.models import fitting
from xalign_models.models.building import load_encoder
from xalign_models.models.identity import fit_spec
from xalign_models.specs import ModelSpec

if TYPE_CHECKING:
    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.store import EmbeddingStore

SAMPLE = 32
"""One of so many vectors from the store is encoded again."""
SAME = 1e-2
"""Largest distance of two encodings of one text, relative to their length: other batches sum in another order."""
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
        notes: What is not as it was: revisions of the model or of the text, vectors in the store.
        encoded: Texts that went through the backbone.
        stored: Vectors that were taken from the store.
        compared: Vectors of the store that were encoded again, too.
    """

    model: str
    task: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    encoded: int = 0
    stored: int = 0
    compared: int = 0

    def differing(self, tolerance: float = TOLERANCE) -> list[Row]:
        """The scores that are farther apart than the tolerance."""
        return [row for row in self.rows if not abs(row.difference) <= tolerance]


@dataclass
class Sampled:
    """A store that holds back one in :data:`SAMPLE` of its vectors, and compares it with the one that is made instead.

    Attributes:
        store: The store.
        stored: Vectors that were given out.
        compared: Vectors that were made again.
        other: Those of them that are others than in the store.
    """

    store: EmbeddingStore
    stored: int = 0
    compared: int = 0
    other: int = 0
    _held: dict[tuple[str, bytes], npt.NDArray[Any]] = field(default_factory=dict, repr=False)

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[Any] | None]:
        """As the store's; None for those that are held back."""
        vectors: list[npt.NDArray[Any] | None] = list(self.store.get(namespace, keys))
        for place, (key, vector) in enumerate(zip(keys, vectors, strict=True)):
            if vector is not None and key[0] % SAMPLE == 0:  # a hash: a random share, the same ones every time
                self._held[namespace, key], vectors[place] = vector, None
        self.stored += sum(vector is not None for vector in vectors)
        return vectors

    def put(self, namespace: str, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """As the store's, but for those that were held back, which are compared."""
        new = [place for place, key in enumerate(keys) if (namespace, key) not in self._held]
        for place in {*range(len(keys))} - {*new}:
            before = self._held.pop((namespace, keys[place]))
            self.compared += 1
            same = before.shape == vectors[place].shape
            self.other += not same or float(np.linalg.norm(vectors[place] - before)) > SAME * float(
                np.linalg.norm(before)
            )
        if new:
            self.store.put(namespace, [keys[place] for place in new], vectors[new])


def reproduce(
    path: Path,
    *,
    device: str | None = None,
    store: EmbeddingStore | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Score the model of a result file on its task again; nothing is written beside the file.

    The tasks have to be known to mteb.

    Args:
        path: ``results/<model>/<revision>/<task>.json``, with the model's metadata beside it.
        device: cpu, cuda or mps; by default the best there is.
        store: Where raw vectors are taken from, but for a sample, and kept; None encodes and fits anew.
        tell: Called with a line on what there is to encode.

    Raises:
        ResultsError: The file is no result, or the model cannot be scored now.
        ModelError: The metadata name no model that is there.
        DataError: There is no such task.
    """
    committed, task_name = _committed(path)
    sampled: Any = Sampled(store) if store is not None else None
    with nullcontext() if store is not None else fitting.anew():
        meta, spec = _meta(path)
        encoder = _encoder(meta["name"], spec, device, sampled)
        task = make_task(task_name, None).filter_eval_splits(sorted({split for split, _ in committed}))
        task.hf_subsets = [subset for subset in task.hf_subsets if any(subset == known for _, known in committed)]
        tell(_plan(encoder, spec, task, store))
        with tempfile.TemporaryDirectory(prefix="xalign-reproduce-") as folder:
            cache = SafeResultCache(Path(folder))
            cache.hardware = hardware(encoder.raw.device)
            outcome = run_one(encoder, task, cache, "none")
    if outcome.result is None:
        raise ResultsError(f"{meta['name']} cannot be scored on {task_name} now: {outcome.error}")
    again = {
        (split, entry["hf_subset"]): float(entry["main_score"])
        for split, entries in outcome.result.scores.items()
        for entry in entries
    }
    revisions = (
        ("the model", meta.get("revision"), encoder.mteb_model_meta.revision),
        ("the text", read_json(path).get("dataset_revision"), outcome.result.dataset_revision),
    )
    notes = [f"{what} is of revision {now} and was of {then}" for what, then, now in revisions if then != now]
    if sampled and sampled.other:
        notes.append(f"{sampled.other} of {sampled.compared} vectors are others than in the store; use --anew")
    rows = tuple(Row(*key, score, again.get(key)) for key, score in sorted(committed.items()))
    counts = encoder.raw.counts.encoded, *((sampled.stored, sampled.compared) if sampled else (0, 0))
    return Reproduction(meta["name"], task_name, rows, tuple(notes), *counts)


def _meta(path: Path) -> tuple[dict[str, Any], ModelSpec | None]:
    """The metadata beside a result, and the spec in them."""
    try:
        meta = read_json(path.with_name(META))
        arguments = meta.get("loader_kwargs") or {}
        spec = ModelSpec.from_dict(arguments["spec"]) if "spec" in arguments else None
        return {**meta, "name": str(meta["name"])}, spec
    except (FileError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path.with_name(META)} names no model ({error}).") from None


def _encoder(name: str, spec: ModelSpec | None, device: str | None, store: Any) -> XAlignEncoder:
    try:
        return load_encoder(name, device=device, store=store)
    except ModelError:
        if spec is None:
            raise
        return load_encoder(spec, device=device, store=store)


def _plan(encoder: XAlignEncoder, spec: ModelSpec | None, task: Any, store: EmbeddingStore | None) -> str:
    """What there is to encode beside the task's own text."""
    from xalign_models.backbones.loading import prompt_in
    from xalign_models.backbones.raw import key
    from xalign_models.models.on_demand import FittedOnDemand

    if spec is None or spec.alignment is None:
        return "There is the task's text to encode; nothing is fitted."
    fit = fit_spec(spec)
    if any(isinstance(module, FittedOnDemand) for module in encoder.tail):  # only what the task asks for
        wanted = {code for codes in languages_of(task).values() for code in codes}
        fit = replace(fit, languages=tuple(sorted(wanted & set(fitting.fit_languages(fit, fitting.load_corpora(fit))))))
    keys = {
        key(prompt_in(encoder.prompts, code), text)
        for language, sides in fitting.fit_texts(fit)
        for code, texts in zip((language, fitting.pivot_of(fit)), sides, strict=False)
        for text in texts
    }
    known = sum(vector is not None for vector in store.get(encoder.raw.namespace, [*keys])) if store else 0
    return f"The fit has {len(keys):,} texts, of which the store has {known:,}; what it lacks is encoded."


def _committed(path: Path) -> tuple[dict[tuple[str, str], float], str]:
    try:
        content: dict[str, Any] = read_json(path)
        scores = {
            (str(split), str(entry["hf_subset"])): entry["main_score"]
            for split, entries in content["scores"].items()
            for entry in entries
        }
        if not scores or not all(map(is_number, scores.values())):
            raise ValueError("it has no scores, or some that are no numbers")
        return scores, str(content["task_name"])
    except (FileError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"{path} is no result ({error}).") from None
