"""``vectors:FILE``: a backbone that looks up texts in a file of vectors. A missing text is an error."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import nn

from xalign_models.assets import file_fingerprint
from xalign_models.backbones.pipeline import Batch
from xalign_models.backbones.raw import key
from xalign_models.backbones.sources import Source
from xalign_models.backbones.streamed import Streamed
from xalign_models.errors import ModelError
from xalign_models.paths import expanded
from xalign_models.specs import BackboneSpec
from xalign_models.vector_files.reading import VectorRows, read_vectors

CHUNK = 16_384
"""Vectors per batch."""


class VectorsFile(Source):
    """Vectors in a file, ``vectors:FILE``, or in a directory of parquet parts.

    Raises:
        ModelError: The file's name is missing.
    """

    def __init__(self, model: str) -> None:
        scheme, _, place = model.partition(":")
        if not place:
            raise ModelError(f"{model} names no file; write {model}FILE, a parquet, npz or safetensors file.")
        self.file = expanded(place).absolute()
        super().__init__(f"{scheme}:{self.file}")

    @property
    def name(self) -> str:
        """The file's name, without its suffix."""
        return self.file.stem

    def fingerprint(self) -> str:
        """The digest of the file.

        Raises:
            ModelError: The file is missing.
        """
        try:
            return file_fingerprint(self.file)
        except OSError as error:
            raise ModelError(f"{self.model} cannot be read: {error.strerror}.") from None

    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """The module that looks up texts.

        Raises:
            FileError: The file has no usable vectors.
        """
        return (Streamed(self.model, partial(self._look_up, read_vectors(self.file))),)

    def _look_up(
        self, stored: VectorRows, texts: Sequence[str], prompt: str
    ) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Batches of vectors; the prompt matters if the file has hashes of prompt and text instead of texts."""
        rows = [stored.row.get(key(prompt, text).hex() if stored.hashed else text, -1) for text in texts]
        if missing := [text for text, row in zip(texts, rows, strict=True) if row < 0]:
            raise ModelError(
                f"{self.file} lacks the vectors of {len(missing)} of {len(texts)} texts, the first of which is "
                f"{missing[0][:80]!r}; add them, or leave the texts out."
            )
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            yield Batch(np.arange(start, start + len(part)), {}, 0, 0), stored.matrix[part].astype(np.float32)
