"""A log of finished pairs' ranks, from which an interrupted run resumes."""

import errno
import hashlib
import logging
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from xalign_models.ranking.neighbours import Measures
from xalign_models.ranking.pairs import Pair
from xalign_models.ranking.ranks import AnyRanks

logger = logging.getLogger(__name__)

_FORM = "2"


class RankLog:
    """An append-only file of the ranks of pairs: an interrupted run resumes at the next pair.

    Several runs may share the file; each reads and appends under a lock. Every record has a checksum. An incomplete
    last record is cut off, and the pairs of damaged ones are computed again.

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
