"""The workers' side of a run on a cluster: opening models and scoring units."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.cluster.cluster import Answer
from xalign_models.cluster.encoding import kept_encoder
from xalign_models.cluster.schedule import Unit
from xalign_models.errors import DataError, XAlignError, one_line, without_exit
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.evaluation.run import identify, run_one
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.mteb import get_task
from xalign_models.paths import cache_dir
from xalign_models.plugins import Part
from xalign_models.results.items import Level, full_folder, load_items
from xalign_models.specs import digest
from xalign_models.store import EmbeddingStore, open_store

Vectors = tuple[str, list[bytes], npt.NDArray[np.float32]]
"""The machine that has vectors, their keys (n,) in its store, and the vectors (n, d)."""


def open_models(
    device: str | None, given: Mapping[str, Any], models: Sequence[str]
) -> list[tuple[XAlignEncoder, str] | XAlignError]:
    """Models without their backbone, each with the name of the device, or the reason for a missing model."""
    opened: list[tuple[XAlignEncoder, str] | XAlignError] = []
    for model in models:
        try:
            with without_exit():
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
    *shared: Vectors | None,
) -> Answer:
    """Score a unit in its own folder, where a second attempt resumes; ``shared`` has vectors of other units.

    Returns:
        mteb's result of the subsets or None, the reason for a failure, outcomes of items, an array per subset, and the
        model's measured costs. With ``share``, also the vectors, if the unit is the first to encode a language.
    """
    import ray

    node = str(ray.get_runtime_context().get_node_id())
    task = get_task(Part(unit.task, splits=unit.splits))
    identify(task)
    task.hf_subsets = list(unit.subsets)
    if str(task.metadata.revision) != unit.data:
        error = f"{unit.task}: the text on {node[:8]} differs from the driver's; give all machines the same text."
        return Answer((None, error, {}, {}))
    try:
        with without_exit():
            encoder = kept_encoder(revision, unit.model, device, **given)
    except Exception as error:
        return Answer((None, one_line(error), {}, {}))
    store, meta = open_store(), encoder.mteb_model_meta
    for machine, keys, rows in filter(None, shared):
        stored = store.get(encoder.raw.namespace, keys) if machine != node else ()
        if missing := [i for i, row in enumerate(stored) if row is None]:
            store.put(encoder.raw.namespace, [keys[i] for i in missing], rows[missing])
    encoder.raw.store = noting = NotingStore(store)  # type: ignore[assignment]
    folder = cache_dir() / "units" / digest(meta.name, meta.revision, unit)[:32]
    cache = SafeResultCache(folder)
    outcome = run_one(encoder, task, cache, "none" if items == "none" else "full")
    kept = full_folder(cache.path_of(unit.task, meta).parent) / f"{unit.task}.npz"
    arrays = load_items(kept) if outcome.result else {}
    shutil.rmtree(folder, ignore_errors=True)
    noted = [*noting.keys] if share and unit.gives else []
    found = zip(noted, store.get(encoder.raw.namespace, noted), strict=True)
    known = {key: row for key, row in found if row is not None}
    vectors = (node, [*known], np.stack([*known.values()])) if known else None
    return Answer((outcome.result, outcome.error, arrays, encoder.measured()), vectors)


class NotingStore:
    """A store that notes the keys of all requested vectors."""

    def __init__(self, store: EmbeddingStore) -> None:
        self._store = store
        self.keys: dict[bytes, None] = {}
        self.note, self.put = store.note, store.put

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[np.float32] | None]:
        """As :meth:`EmbeddingStore.get`."""
        self.keys |= dict.fromkeys(keys)
        return self._store.get(namespace, keys)
