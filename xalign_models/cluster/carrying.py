"""Vectors that travel: what a piece of work had to encode, for pieces on machines whose own store lacks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from xalign_models.store import EmbeddingStore


@dataclass(frozen=True)
class Carried:
    """Vectors in Ray's object store: a piece of work runs where most of the bytes that it needs are.

    Attributes:
        node: The machine whose store has them.
        vectors: Keys and vectors (n, d) by namespace.
    """

    node: str
    vectors: dict[str, tuple[list[bytes], npt.NDArray[np.float32]]]

    def unpack(self, store: EmbeddingStore) -> None:
        """Put into a store what it lacks."""
        for namespace, (keys, vectors) in self.vectors.items():
            lacking = [i for i, vector in enumerate(store.get(namespace, keys)) if vector is None]
            if lacking:
                store.put(namespace, [keys[i] for i in lacking], vectors[lacking])


class Recorder:
    """A store that remembers what was read from it and written to it.

    Args:
        store: The machine's.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        self.store = store
        self._seen: dict[str, dict[bytes, npt.NDArray[np.float32]]] = {}

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[np.float32] | None]:
        """As the store's."""
        vectors = self.store.get(namespace, keys)
        pairs = zip(keys, vectors, strict=True)
        self._seen.setdefault(namespace, {}).update((key, vector) for key, vector in pairs if vector is not None)
        return vectors

    def put(self, namespace: str, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """As the store's."""
        self.store.put(namespace, keys, vectors)
        self._seen.setdefault(namespace, {}).update(zip(keys, vectors, strict=True))

    def carried(self, node: str) -> Carried:
        """All that was seen."""
        return Carried(node, {name: ([*seen], np.stack([*seen.values()])) for name, seen in self._seen.items() if seen})
