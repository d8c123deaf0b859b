"""Vectors in Ray's object store, for tasks on machines whose own store lacks them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xalign_models.store import EmbeddingStore


@dataclass(frozen=True)
class SharedVectors:
    """Vectors that one task encoded; Ray runs the tasks that need them where most of their bytes are.

    Attributes:
        node: The machine whose store has them.
        vectors: Keys and vectors (n, d) by namespace.
    """

    node: str
    vectors: dict[str, tuple[list[bytes], npt.NDArray[np.float32]]]

    def copy_to(self, store: EmbeddingStore) -> None:
        """Write the vectors that a store lacks."""
        for namespace, (keys, vectors) in self.vectors.items():
            missing = [i for i, vector in enumerate(store.get(namespace, keys)) if vector is None]
            if missing:
                store.put(namespace, [keys[i] for i in missing], vectors[missing])


class RecordingStore:
    """A store that remembers all vectors that were read and written."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store = store
        self._seen: dict[str, dict[bytes, npt.NDArray[np.float32]]] = {}

    def note(self, namespace: str, text: str) -> str:
        """As :meth:`EmbeddingStore.note`."""
        return self.store.note(namespace, text)

    def get(self, namespace: str, keys: Sequence[bytes]) -> list[npt.NDArray[np.float32] | None]:
        """As :meth:`EmbeddingStore.get`."""
        vectors = self.store.get(namespace, keys)
        pairs = zip(keys, vectors, strict=True)
        self._seen.setdefault(namespace, {}).update((key, vector) for key, vector in pairs if vector is not None)
        return vectors

    def put(self, namespace: str, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """As :meth:`EmbeddingStore.put`."""
        self.store.put(namespace, keys, vectors)
        self._seen.setdefault(namespace, {}).update(zip(keys, vectors, strict=True))

    def shared(self, node: str) -> SharedVectors:
        """The vectors read and written so far."""
        seen = {name: ([*rows], np.stack([*rows.values()])) for name, rows in self._seen.items() if rows}
        return SharedVectors(node, seen)
