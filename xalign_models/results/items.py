"""Outcomes of single items beside the scores: what a significance test needs, in a few bits an item.

A task writes all that it knows of its items, such as ranks, to ``items/full/<Task>.npz``, an array per subset.
``items/<Task>.npz`` keeps of them only the outcomes whose mean is the main score: whether an item was hit, its average
precision, or its share in a correlation. A zip member has a checksum, so that damage is noticed; nothing is pickled.
"""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, one_line
from xalign_models.files import read_npz
from xalign_models.paths import atomic_file
from xalign_models.results.intervals import Sample
from xalign_models.results.proportions import Fall, fall_of
from xalign_models.results.reading import TaskScores
from xalign_models.results.significance import ZERO, effect_of_changes

logger = logging.getLogger(__name__)

Outcomes = dict[str, npt.NDArray[np.bool_ | np.floating]]

Level = Literal["none", "outcomes", "full"]
"""Data of single items that a run keeps: none, the outcomes for significance tests, or everything."""
KS = (1, 5, 10)
"""The main score may be the share of ranks up to one of these."""
TOLERANCE = 1e-5
"""Allowed difference of the outcomes' mean and the score, which has six decimals."""
MOST = 64 << 20
"""Maximum size of a file of items in bytes, unpacked; outcomes in bits take eight times as much in memory."""
KEPT = 4 << 20
"""Maximum size in bytes of the outcomes in memory, but for one file; those that were asked for last stay."""
_STEPS = 65535  # of an outcome between a miss and a hit
DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def full_folder(folder: Path) -> Path:
    """Folder of the full item data in a model's folder of results."""
    return folder / "items" / "full"


def outcomes_path(folder: Path, task: str) -> Path:
    """File of a task's outcomes in a model's folder of results."""
    return folder / "items" / f"{task}.npz"


def save_items(folder: Path, task: str, items: Mapping[str, npt.NDArray[Any]]) -> None:
    """Save all item data of a task to ``<folder>/<task>.npz``, an array per subset.

    Subsets of earlier runs are kept, unless the file is damaged.
    """
    path = folder / f"{task}.npz"
    _write(path, {**load_items(path), **items})


def keep_outcomes(folder: Path, task: str, scores: Mapping[str, float]) -> None:
    """Write the outcomes of a task from ``items/full``, in addition to those of subsets written before.

    A subset whose items do not yield its main score in ``scores`` is left out.
    """
    items = load_items(full_folder(folder) / f"{task}.npz")
    outcomes = {subset: outcomes_of(array, scores[subset]) for subset, array in items.items() if subset in scores}
    new = {subset: array for subset, array in outcomes.items() if array is not None}
    if new:
        write_outcomes(outcomes_path(folder, task), {**read_outcomes(outcomes_path(folder, task)), **new})


def outcomes_of(items: npt.NDArray[Any], score: float) -> npt.NDArray[np.bool_ | np.floating] | None:
    """The outcomes (n,) whose mean is ``score``; None if the items do not yield it.

    Items are ranks (..., n) from 1, of which the last row counts; (n, 2) predicted and true labels; or numbers (n,).
    """
    candidates: list[npt.NDArray[Any]] = []
    if items.dtype.kind in "iu":
        ranks = items.reshape(-1, items.shape[-1])[-1]
        candidates = [ranks <= k for k in KS]
    elif items.dtype.kind == "U" and items.ndim == 2 and items.shape[1] == 2:
        candidates = [items[:, 0] == items[:, 1]]
    elif items.dtype.kind in "bf" and items.ndim == 1 and np.isfinite(items).all():
        candidates = [items]
    return next((one for one in candidates if len(one) and abs(one.mean(dtype=np.float64) - score) < TOLERANCE), None)


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Write outcomes by subset: hits as bits, others in [0, 1] in 16 bits each, any others as float32."""
    subsets = sorted(outcomes)
    arrays: dict[str, Any] = {
        "subsets": np.array(subsets),
        "lengths": np.array([len(outcomes[subset]) for subset in subsets], dtype=np.uint32),
    }
    flat = np.concatenate([outcomes[subset] for subset in subsets])
    if flat.dtype == np.bool_:
        arrays["hits"] = np.packbits(flat)
    elif flat.min(initial=0) >= 0 and flat.max(initial=0) <= 1:
        arrays["values"] = np.rint(flat * _STEPS).astype("<u2")
    else:
        arrays["shares"] = flat.astype("<f4")
    _write(path, arrays)


def read_outcomes(path: Path, scores: Mapping[str, float] | None = None) -> Outcomes:
    """Outcomes by subset, of those whose mean is the score if ``scores`` are given.

    Empty if there are none, or, with a warning, if the file is damaged.
    """
    if not (arrays := load_items(path)):
        return {}
    try:
        subsets, lengths = arrays["subsets"].tolist(), arrays["lengths"].astype(int).ravel()
        total = int(lengths.sum())
        flat: npt.NDArray[Any]
        if "hits" in arrays:
            flat = np.unpackbits(arrays["hits"])[:total].astype(np.bool_)
        else:
            flat = arrays["shares"].astype(np.float64) if "shares" in arrays else arrays["values"] / _STEPS
        if len(flat) != total or len(subsets) != len(lengths) or (lengths < 0).any():
            raise ValueError("lengths do not add up")
        ends = np.cumsum(lengths)
        kept = np.ones(len(lengths), np.bool_)
        if scores is not None:
            wanted = np.array([scores.get(subset, np.nan) for subset in subsets])
            kept, filled = np.zeros_like(kept), np.flatnonzero(lengths)
            numbers, kind = (flat.view(np.uint8), np.uint32) if flat.dtype == np.bool_ else (flat, np.float64)
            sums = np.add.reduceat(numbers, (ends - lengths)[filled], dtype=kind) if len(filled) else filled
            kept[filled] = np.abs(sums / lengths[filled] - wanted[filled]) < TOLERANCE
        bounds = zip(subsets, (ends - lengths).tolist(), ends.tolist(), kept.tolist(), strict=True)
        return {subset: flat[start:end] for subset, start, end, keep in bounds if keep}
    except DAMAGED as error:
        _warn(f"{path} is damaged ({one_line(error)}).")
        return {}


class Items:
    """Outcomes by item, whose mean is a metric; only the main score, or one equal to it, has outcomes.

    Of the task that was asked for last, ``samples`` stay in memory, and ``KEPT`` bytes of outcomes.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._task = ""
        self._loaded: dict[Path, Outcomes] = {}
        self._size = 0  # bytes
        self.samples: dict[tuple[Path, frozenset[str]], Sample | None] = {}

    def falls(self, table: TaskScores, base: TaskScores, rows: Mapping[str, Mapping[str, float]]) -> dict[str, Fall]:
        """The fall of weighted means from ``base`` to ``table``, by sentence.

        ``rows`` are the weights of each mean by subset. A mean is left out if one of its subsets has no outcomes in one
        of the two, or other sentences. Sentence i counts as the same in all subsets, as in multi-parallel text; if
        subsets have different sentences, this only groups independent outcomes.
        """
        base_hits = self.outcomes(base)
        hits = self.outcomes(table) if base_hits else {}  # a baseline file has none
        kept = [s for s in hits if s in base_hits and len(hits[s]) == len(base_hits[s])]
        place = {subset: index for index, subset in enumerate(kept)}
        tested = {name: weights for name, weights in rows.items() if weights.keys() <= place.keys()}
        if not tested:
            return {}
        lengths = np.array([len(hits[subset]) for subset in kept])
        shape = len(kept), lengths.max()
        moved, before = np.zeros(shape), np.zeros(shape, np.float32)
        for row, old, subset in zip(moved, before, kept, strict=True):
            np.subtract(hits[subset], base_hits[subset], row[: len(hits[subset])], dtype=np.float64)
            old[: len(hits[subset])] = base_hits[subset]
        shares = np.zeros((len(tested), len(kept)))
        for row, weights in zip(shares, tested.values(), strict=True):
            row[[place[subset] for subset in weights]] = [*weights.values()]
        shares /= lengths
        gaps = shares @ moved
        gaps[np.abs(gaps) < ZERO] = 0  # equal outcomes
        distinct, kind = np.unique(lengths, return_inverse=True)
        there = np.arange(lengths.max()) < distinct[:, None]
        before -= (before.sum(axis=1) / lengths).astype(np.float32)[:, None]
        if len(distinct) > 1:  # zeros beyond the ends of shorter subsets
            before *= there[kind]
        changes = gaps - shares * (moved.sum(axis=1) / lengths) @ np.eye(len(distinct))[kind] @ there
        effects = effect_of_changes(changes, shares.astype(np.float32) @ before).tolist()
        moments = zip(tested, gaps, shares.sum(axis=1).tolist(), effects, strict=True)
        return {name: fall_of(row, share).with_effect(effect) for name, row, share, effect in moments}

    def sample(self, table: TaskScores, subsets: frozenset[str]) -> Sample | None:
        """The mean over some subsets by language and sentence; None if one of them has no outcomes."""
        key = table.folder, subsets
        if table.task != self._task or key not in self.samples:
            outcomes = self.outcomes(table)
            chosen = {subset: outcomes[subset] for subset in subsets & outcomes.keys()}
            self.samples[key] = Sample.of(chosen, table.frame.languages) if len(chosen) == len(subsets) else None
        return self.samples[key]

    def outcomes(self, table: TaskScores) -> Outcomes:
        """Outcomes by subset, if their mean is the score."""
        if table.task != self._task:
            self._task, self._loaded, self._size, self.samples = table.task, {}, 0, {}
        found = self._loaded.pop(table.folder, None)
        if found is None:
            found = read_outcomes(outcomes_path(table.folder, table.task), table.values(self.metric))
            self._size += _size(found)
        self._loaded[table.folder] = found  # which is now the last one that was asked for
        while self._size > KEPT and len(self._loaded) > 1:
            self._size -= _size(self._loaded.pop(next(iter(self._loaded))))
        return found


def _size(outcomes: Outcomes) -> int:
    return sum(array.nbytes for array in outcomes.values())


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    with atomic_file(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **arrays)


def load_items(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All item data that :func:`save_items` wrote; empty if there are none, or, with a warning, if they are damaged."""
    if not path.is_file():
        return {}
    try:
        return read_npz(path, most=MOST)
    except FileError as error:
        _warn(error)
        return {}


def _warn(error: object) -> None:
    logger.warning("%s The file is not used; differences of its model are not tested.", error)
