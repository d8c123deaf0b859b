"""A log of finished pairs' ranks, from which an interrupted run resumes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.ranking.pairs import Pair
from xalign_models.ranking.ranks import AnyRanks


class RankLog:
    """Ranks of pairs in a file that is only appended to: an interrupted run goes on at the next pair.

    A record is one write; half a record, left by a process that died in it, is cut off.

    Args:
        path: The file; None keeps nothing.
        identity: Of everything that determines the ranks; a file of another one is begun anew.
        shape: (s, n) of a direction's ranks.
    """

    def __init__(self, path: Path | None, identity: str, shape: tuple[int, int]) -> None:
        self.path = path
        self._head = hashlib.sha256(f"{identity} {shape}".encode()).digest()
        name = ("S", 24)
        self._record = np.dtype([
            ("a", *name), ("b", *name), ("ranks", np.min_scalar_type(shape[1]), (2, *shape)),
        ])  # fmt: skip
        self._file: Any = None

    def read(self) -> dict[Pair, tuple[AnyRanks, AnyRanks]]:
        """What is there: pair to its ranks in both directions."""
        if self.path is None or not self.path.is_file():
            return {}
        data = self.path.read_bytes()
        if data[: len(self._head)] != self._head:
            self.path.unlink()
            return {}
        body = memoryview(data)[len(self._head) :]
        whole = len(body) // self._record.itemsize
        with self.path.open("r+b") as file:
            file.truncate(len(self._head) + whole * self._record.itemsize)
        records = np.frombuffer(body, dtype=self._record, count=whole)
        return {(one["a"].decode(), one["b"].decode()): tuple(one["ranks"]) for one in records}

    def append(self, pair: Pair, forward: AnyRanks, backward: AnyRanks) -> None:
        """One pair's ranks."""
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            if not self._file.tell():
                self._file.write(self._head)
        record = np.array([(*(one.encode() for one in pair), (forward, backward))], dtype=self._record)
        self._file.write(record.tobytes())

    def close(self, remove: bool = False) -> None:
        """Close the file; ``remove`` it when its ranks are kept elsewhere."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if remove and self.path is not None:
            self.path.unlink(missing_ok=True)
