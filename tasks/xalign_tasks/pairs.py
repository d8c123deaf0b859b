"""Shared code of tasks over all pairs of languages: encode each language once, score pairs, resume."""

import errno
import hashlib
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from xalign_models.device import each
from xalign_models.progress import live
from xalign_models.ranking.neighbours import NAMES, Measures
from xalign_models.ranking.pairs import LanguageVectors, Pair, Sides, all_pairs
from xalign_models.ranking.ranks import AnyRanks
from xalign_tasks.base import CorpusTask, Scoring

logger = logging.getLogger(__name__)

_FORM = "2"


class RankLog:
    """An append-only file of the ranks of pairs: an interrupted run resumes at the next pair.

    Several runs may share the file; each reads and appends under a lock. Every record has a checksum. An incomplete
    last record is cut off, and the pairs of damaged records are computed again.

    Args:
        path: The file; None to keep nothing.
        identity: Digest of everything that determines the ranks; a file with another identity is replaced.
        shape: (s, n) of a direction's ranks.
        measures: Number of measures of a direction.
    """

    def __init__(self, path: Path | None, identity: str, shape: tuple[int, int], measures: int = 0) -> None:
        self.path = path
        self._head = hashlib.sha256(f"{_FORM} {identity} {shape} {measures}".encode()).digest()
        fields: list[Any] = [("a", "S24"), ("b", "S24"), ("ranks", np.min_scalar_type(shape[1]), (2, *shape))]
        self._record = np.dtype([*fields, ("measures", "<f8", (2, measures)), ("check", "<u4")])

    def read(self) -> dict[Pair, tuple[AnyRanks, AnyRanks, Measures]]:
        """Ranks in both directions and measures (2, m) of the finished pairs."""
        if self.path is None or not self.path.is_file():
            return {}
        with FileLock(f"{self.path}.lock"):
            data = self.path.read_bytes()
            if data[: len(self._head)] != self._head:
                self.path.unlink()
                return {}
            body = data[len(self._head) :]
            size = self._record.itemsize
            complete = len(body) // size
            if len(body) % size:
                with self.path.open("r+b") as file:
                    file.truncate(len(self._head) + complete * size)
        records = np.frombuffer(body, dtype=self._record, count=complete)
        intact = [row for row in records if zlib.crc32(row.tobytes()[:-4]) == row["check"]]
        if len(intact) < complete:
            logger.warning("%s: %d damaged records; their pairs are computed again.", self.path, complete - len(intact))
        return {(row["a"].decode(), row["b"].decode()): (*row["ranks"], row["measures"]) for row in intact}

    def append(self, pair: Pair, forward: AnyRanks, backward: AnyRanks, measures: Measures) -> None:
        """Append a pair's ranks and measures."""
        if self.path is None:
            return
        row = (*(code.encode() for code in pair), (forward, backward), measures, 0)
        record = np.array([row], dtype=self._record)
        record["check"] = zlib.crc32(record.tobytes()[:-4])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"), self.path.open("ab", buffering=0) as file:
            start = file.tell()
            data = (b"" if start else self._head) + record.tobytes()
            if file.write(data) < len(data):  # records after half a record could not be read
                file.truncate(start)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


RankedSubset = tuple[str, AnyRanks, Measures]
"""A subset, ranks of its queries' counterparts, and the measures of its neighbourhoods."""


def log_path(folder: Path | None, task: str, remove: bool = False) -> Path | None:
    """The file of the ranks of an unfinished run, next to the items; None without a folder."""
    path = None if folder is None else Path(folder) / f".{task}.ranks"
    if remove and path is not None:
        for name in (path, path.with_name(f"{path.name}.lock")):
            name.unlink(missing_ok=True)
    return path


def scored_pairs(
    task: CorpusTask, scoring: Scoring, subsets: set[str], sides: Callable[[str], Sides], shape: tuple[int, int]
) -> Iterator[RankedSubset]:
    """Ranks of ordered pairs ``a-b``: one score matrix serves both directions, on the GPU if the model is there.

    Args:
        task: The task, for its name and the revision of its text.
        scoring: The model, for its revision and its device, and the folder of a file of the ranks to resume from.
        subsets: Ordered pairs, ``deu_Latn-eng_Latn``.
        sides: Encodes a language; called once per needed language.
        shape: (s, n) of the ranks of a direction.

    Yields:
        Subset, ranks (s, n) where 1 is best, and the measures of its neighbourhoods (6,) if s = 1.
    """
    pairs = sorted({(min(pair), max(pair)) for pair in (subset.split("-") for subset in subsets)})
    model: Any = scoring.model
    name, meta = task.metadata.name, getattr(model, "mteb_model_meta", None)
    identity = f"{task.metadata.dataset} {getattr(meta, 'name', '')} {getattr(meta, 'revision', '')}"
    log_file = RankLog(log_path(scoring.folder, name), identity, shape, len(NAMES) if shape[0] == 1 else 0)
    finished = log_file.read()
    remaining = [pair for pair in pairs if pair not in finished]
    vectors = LanguageVectors()
    for code in live(sorted({code for pair in remaining for code in pair}), desc=f"{name}: encode"):
        vectors[code] = sides(code)
    device = each(str(getattr(getattr(model, "raw", None), "device", "cpu")))[0]  # a model may be on several
    ranked = all_pairs(vectors.__getitem__, remaining, device=device if device.startswith("cuda") else "cpu")
    small = np.min_scalar_type(shape[1])
    for pair, (forward, backward, measures) in finished.items():
        yield from directions(pair, (forward, backward), measures, subsets)
    for pair, forward, backward, measures in live(ranked, desc=f"{name}: score", total=len(remaining)):
        ranks = forward.astype(small), backward.astype(small)
        log_file.append(pair, *ranks, measures)
        yield from directions(pair, ranks, measures, subsets)


def directions(
    pair: tuple[str, str], ranks_of: tuple[AnyRanks, AnyRanks], measures: Measures, subsets: set[str]
) -> Iterator[RankedSubset]:
    """Results of a pair's directions that are among the subsets."""
    for subset, ranks, values in zip(("-".join(pair), "-".join(reversed(pair))), ranks_of, measures, strict=True):
        if subset in subsets:
            yield subset, ranks, values
