"""The workers' side of a run on a cluster: they open models and score units."""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.cluster.cluster import Answer
from xalign_models.cluster.encoding import kept_encoder
from xalign_models.cluster.schedule import Unit
from xalign_models.errors import DataError, XAlignError, one_line
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.run import identify, run_one
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.mteb import get_task
from xalign_models.paths import cache_dir
from xalign_models.plugins import Part
from xalign_models.results.items import Level, full_folder
from xalign_models.specs import digest
from xalign_models.store import EmbeddingStore, open_store

Vectors = dict[str, tuple[list[bytes], npt.NDArray[np.float32]]]
"""Keys and vectors (n, d) by namespace."""


def open_models(
    device: str | None, given: Mapping[str, Any], models: Sequence[str]
) -> list[tuple[XAlignEncoder, str] | XAlignError]:
    """Models without their backbone, each with the name of the device; or why there is none."""
    opened: list[tuple[XAlignEncoder, str] | XAlignError] = []
    for model in models:
        try:
            encoder = load_encoder(model, device=device, **given)
            if encoder.mteb_model_meta.revision is None:
                raise DataError(f"{model} has no revision to store results under.")
            raw: Any = None
            known = None if encoder.languages is None else sorted(encoder.languages)
            bare = XAlignEncoder(raw, [], encoder.prompts, known, encoder.mteb_model_meta)
            opened.append((bare, hardware(encoder.raw.device)))
        except Exception as error:  # a broken model may raise anything and must not stop the others
            opened.append(DataError(one_line(error)))
    return opened


def score(
    device: str | None,
    given: Mapping[str, Any],
    items: Level,
    share: bool,
    revision: str,
    unit: Unit,
    *shared: tuple[str, Vectors],
) -> Answer:
    """Score a unit in a folder of its own, where a second attempt resumes; ``shared`` has vectors of other units.

    Returns:
        mteb's result of the subsets or None, the reason of a failure, and outcomes of items, an array per subset. With
        ``share``, also the vectors, if the unit is the first to encode a language.
    """
    import ray

    store, node = NotingStore(open_store()), str(ray.get_runtime_context().get_node_id())
    for machine, vectors in filter(None, shared):
        if machine != node:
            store.copy(vectors)
    task = get_task(Part(unit.task, splits=unit.splits))
    identify(task)
    task.hf_subsets = list(unit.subsets)
    if str(task.metadata.revision) != unit.data:
        error = f"{unit.task}: the text on {node[:8]} is not the driver's; give all machines one text."
        return Answer((None, error, {}))
    try:
        encoder = kept_encoder(revision, unit.model, device, **given)
    except Exception as error:
        return Answer((None, one_line(error), {}))
    encoder.raw.store = store  # type: ignore[assignment]
    meta = encoder.mteb_model_meta
    folder = cache_dir() / "units" / digest(meta.name, meta.revision, unit)[:32]
    cache = SafeResultCache(folder)
    outcome = run_one(encoder, task, cache, "none" if items == "none" else "full")
    kept = full_folder(cache.path_of(unit.task, meta).parent) / f"{unit.task}.npz"
    arrays: dict[str, Any] = {}
    if outcome.result is not None and kept.is_file():
        with np.load(kept) as stored:
            arrays = dict(stored)
    shutil.rmtree(folder, ignore_errors=True)
    return Answer((outcome.result, outcome.error, arrays), (node, store.noted()) if share and unit.gives else None)


class NotingStore:
    """A store that notes the keys of all vectors that it is asked for."""

    def __init__(self, store: EmbeddingStore) -> None:
        self._store = store
        self._keys: defaultdict[str, dict[bytes, None]] = defaultdict(dict)
        self.note, self.put = store.note, store.put

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[np.float32] | None]:
        """As :meth:`EmbeddingStore.get`."""
        self._keys[namespace] |= dict.fromkeys(keys)
        return self._store.get(namespace, keys)

    def noted(self) -> Vectors:
        """The vectors of the noted keys."""
        found = {name: zip(keys, self._store.get(name, [*keys]), strict=True) for name, keys in self._keys.items()}
        known = {name: {key: row for key, row in pairs if row is not None} for name, pairs in found.items()}
        return {name: ([*rows], np.stack([*rows.values()])) for name, rows in known.items() if rows}

    def copy(self, vectors: Vectors) -> None:
        """Write the vectors of another machine that the store lacks."""
        for namespace, (keys, rows) in vectors.items():
            missing = [i for i, vector in enumerate(self._store.get(namespace, keys)) if vector is None]
            if missing:
                self.put(namespace, [keys[i] for i in missing], rows[missing])
