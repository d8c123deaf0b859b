"""Runs a committed result again and compares: the same model on the same text gives the same scores.

By default vectors come from the store, and one in :data:`SAMPLE` of them is encoded again and compared.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.linalg import norm

from xalign_models.alignments.registry import find_method
from xalign_models.backbones.loading import prompt_in
from xalign_models.backbones.raw import key
from xalign_models.errors import FileError, ModelError, ResultsError
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.run import languages_of, make_task, run_one
from xalign_models.models import fitting
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.recipe import Recipe
from xalign_models.results.reading import ModelMeta, TaskScores, check_main_scores, read_meta, read_result
from xalign_models.specs import ModelSpec
from xalign_models.store import EmbeddingStore

SAMPLE = 32
"""One in ``SAMPLE`` stored vectors is encoded again."""
SAME = 1e-2
"""Maximum distance between two encodings of a text, relative to their length, because batches differ in rounding."""
TOLERANCE = 1e-4
"""Allowed difference between a committed score and the new one, because machines differ in rounding."""


@dataclass(frozen=True)
class ScorePair:
    """The main score of a subset in the file, and the new score; None if the subset is gone."""

    split: str
    subset: str
    committed: float
    again: float | None

    @property
    def difference(self) -> float:
        """``again - committed``; infinite without a new score."""
        return float("inf") if self.again is None else self.again - self.committed


@dataclass(frozen=True)
class Reproduction:
    """A reproduced result.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        rows: All scores of the file.
        notes: Changes of the model's or the text's revision, or of vectors in the store.
        encoded: Number of texts that the backbone encoded.
        stored: Number of vectors taken from the store.
        compared: Number of stored vectors that were encoded again.
    """

    model: str
    task: str
    rows: tuple[ScorePair, ...]
    notes: tuple[str, ...]
    encoded: int = 0
    stored: int = 0
    compared: int = 0

    def differing(self, tolerance: float = TOLERANCE) -> list[ScorePair]:
        """The scores that differ by more than the tolerance."""
        return [row for row in self.rows if not abs(row.difference) <= tolerance]


@dataclass
class Sampled:
    """A store that withholds one in :data:`SAMPLE` of its vectors, and compares it with the new encoding.

    Attributes:
        store: The store.
        stored: Number of vectors returned.
        compared: Number of vectors encoded again.
        changed: Number of these that differ from the stored ones.
    """

    store: EmbeddingStore
    stored: int = 0
    compared: int = 0
    changed: int = 0
    _withheld: dict[tuple[str, bytes], npt.NDArray[Any]] = field(default_factory=dict, repr=False)

    def note(self, namespace: str, text: str) -> str:
        """Like the store's method."""
        return self.store.note(namespace, text)

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[Any] | None]:
        """Like the store's method; None for withheld vectors."""
        vectors: list[npt.NDArray[Any] | None] = list(self.store.get(namespace, keys))
        for place, (digest, vector) in enumerate(zip(keys, vectors, strict=True)):
            if vector is not None and digest[0] % SAMPLE == 0:  # a hash: a random but reproducible share
                self._withheld[namespace, digest], vectors[place] = vector, None
        self.stored += sum(vector is not None for vector in vectors)
        return vectors

    def put(self, namespace: str, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """Like the store's method, but compare vectors that were withheld."""
        new = [place for place, key in enumerate(keys) if (namespace, key) not in self._withheld]
        for place in {*range(len(keys))} - {*new}:
            before = self._withheld.pop((namespace, keys[place]))
            self.compared += 1
            same_shape = before.shape == vectors[place].shape
            self.changed += not same_shape or bool(norm(vectors[place] - before) > SAME * norm(before))
        if new:
            self.store.put(namespace, [keys[place] for place in new], vectors[new])


def reproduce(
    path: Path,
    *,
    device: str | None = None,
    store: EmbeddingStore | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Score the model of a result file on its task again, without writing next to the file.

    Tasks must be registered with mteb.

    Args:
        path: ``results/<model>/<revision>/<task>.json``, next to the model's metadata.
        device: cpu, cuda or mps; by default the best available.
        store: Store of raw vectors, used except for a sample; None encodes and fits again.
        tell: Called with a line about the texts to encode.

    Raises:
        ResultsError: The file is not a result, or the model cannot be scored now.
        ModelError: The model of the metadata is missing.
        DataError: The task is unknown.
    """
    committed, meta = _committed(path)
    sampled: Any = Sampled(store) if store is not None else None
    with nullcontext() if store is not None else fitting.without_cache():
        encoder = _encoder(meta, device, sampled)
        task = make_task(committed.task, None).filter_eval_splits(sorted({*committed.frame.splits}))
        task.hf_subsets = [subset for subset in task.hf_subsets if subset in committed.frame.subsets]
        tell(_plan(encoder, meta.spec, task, store))
        with tempfile.TemporaryDirectory(prefix="xalign-reproduce-") as folder:
            cache = SafeResultCache(Path(folder))
            cache.hardware = hardware(encoder.raw.device)
            outcome = run_one(encoder, task, cache, "none")
    if outcome.result is None:
        raise ResultsError(f"{meta.name} cannot be scored on {committed.task} now: {outcome.error}")
    scores = {
        (split, entry["hf_subset"]): float(entry["main_score"])
        for split, entries in outcome.result.scores.items()
        for entry in entries
    }
    revisions = (
        ("the model", meta.fields.get("revision"), encoder.mteb_model_meta.revision),
        ("the text", committed.dataset_revision, outcome.result.dataset_revision),
    )
    notes = [f"{name} has revision {new}; it had {old}" for name, old, new in revisions if old != new]
    if sampled and sampled.changed:
        notes.append(f"{sampled.changed} of {sampled.compared} vectors differ from the store's; add --no-cache")
    rows = tuple(
        ScorePair(split, subset, score, scores.get((split, subset)))
        for split, subset, _, score in sorted(committed.rows())
    )
    counts = encoder.raw.counts.encoded, *((sampled.stored, sampled.compared) if sampled else (0, 0))
    return Reproduction(meta.name, committed.task, rows, tuple(notes), *counts)


def _encoder(meta: ModelMeta, device: str | None, store: Any) -> XAlignEncoder:
    try:
        return load_encoder(meta.name, device=device, store=store)
    except ModelError:
        if meta.spec is None:
            raise
        return load_encoder(meta.spec, device=device, store=store)


def _plan(encoder: XAlignEncoder, spec: ModelSpec | None, task: Any, store: EmbeddingStore | None) -> str:
    """Description of the texts to encode in addition to the task's own."""
    if spec is None or spec.alignment is None:
        return "Only the task's text is encoded; the model has no alignment to fit."
    recipe = Recipe(spec)
    fit = recipe.alignment
    assert fit is not None
    if find_method(fit.method).by_language:  # only the task's languages
        codes = {code for languages in languages_of(task).values() for code in languages}
        known = set(fitting.fit_languages(fit, fitting.load_corpora(fit)))
        fit = replace(fit, languages=tuple(sorted(codes & known)))
    keys = {
        key(prompt_in(encoder.prompts, code, prompt), text)
        for prompt in recipe.prompts
        for language, sides in fitting.fit_texts(fit)
        for code, texts in zip((language, fitting.pivot_of(fit)), sides, strict=False)
        for text in texts
    }
    stored = sum(vector is not None for vector in store.get(encoder.raw.namespace, [*keys])) if store else 0
    return f"The fit has {len(keys):,} texts, of which the store has {stored:,}; the others are encoded."


def _committed(path: Path) -> tuple[TaskScores, ModelMeta]:
    """A result whose main scores are all possible, and its model's metadata."""
    try:
        table = read_result(path)
        check_main_scores(table)
        return table, read_meta(path.absolute().parent)
    except FileError as error:
        raise ResultsError(f"{path} cannot be run again: {error}") from None
