"""``vectors:FILE``: a backbone that looks texts up in a file of vectors. A missing text is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.modules.input_module import InputModule
from torch import nn

from xalign_models.assets import file_fingerprint
from xalign_models.backbones.inputs import split_inputs
from xalign_models.backbones.pipeline import Batch
from xalign_models.backbones.raw import key
from xalign_models.backbones.sources import Source
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec
from xalign_models.vector_files.reading import read_vectors

CHUNK = 16_384
"""Vectors per batch."""


class VectorsFile(Source):
    """Vectors in a file, ``vectors:FILE``, or in a directory of parquet parts.

    Args:
        model: The backbone's ``model``, ``vectors:FILE``.

    Raises:
        ModelError: The file's name is missing.
    """

    def __init__(self, model: str) -> None:
        scheme, _, place = model.partition(":")
        if not place:
            raise ModelError(f"{model} names no file; write {model}FILE, a parquet, npz or safetensors file.")
        self.file = Path(place).expanduser().absolute()
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
        """The module that looks texts up.

        Raises:
            FileError: The file has no usable vectors.
        """
        return (StoredVectors(self.file),)


class StoredVectors(InputModule):
    """The vectors of a file as the first module of a model. A saved model refers to the file.

    Args:
        file: Parquet, npz or safetensors; see :func:`~xalign_models.vector_files.reading.read_vectors`.

    Raises:
        FileError: The file has no usable vectors.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.vectors = read_vectors(file)

    def get_embedding_dimension(self) -> int:
        """The dimension d of the vectors."""
        return int(self.vectors.matrix.shape[1])

    def lookup(self, texts: Sequence[str], prompt: str = "") -> npt.NDArray[np.float32]:
        """Vectors (n, d) of texts.

        Args:
            texts: Texts exactly as in the file.
            prompt: Prompt of the texts; used if the file has hashes of prompt and text instead of texts.

        Raises:
            ModelError: Texts are not in the file; the message counts them and names the first.
        """
        hashed = self.vectors.hashed
        rows = [self.vectors.row.get(key(prompt, text).hex() if hashed else text, -1) for text in texts]
        if missing := [text for text, row in zip(texts, rows, strict=True) if row < 0]:
            raise ModelError(
                f"{self.file} lacks the vectors of {len(missing)} of {len(texts)} texts, the first of them "
                f"{missing[0][:80]!r}; add them, or leave the texts out."
            )
        chosen: npt.NDArray[np.float32] = self.vectors.matrix[rows].astype(np.float32)
        return chosen

    def stream(self, texts: Sequence[str], prompt: str) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Batches of vectors; all texts are looked up before the first batch."""
        vectors = self.lookup(texts, prompt)
        for start in range(0, len(texts), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(texts)))
            yield Batch(rows, {}, 0, 0), vectors[rows]

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Look up texts, or ``{"text": ..., "lang": ...}``."""
        texts, languages = split_inputs(inputs, kwargs.get("lang"))
        features: dict[str, Any] = {"sentence_embedding": torch.from_numpy(self.lookup(texts, prompt or ""))}
        return {**features, "lang": languages} if any(languages) else features

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return ``features["sentence_embedding"]`` (n, d) of ``preprocess``."""
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Refuse to save, as the file is not copied.

        Raises:
            ModelError: Always.
        """
        raise ModelError(f"{self.file} is not copied into a model; use xalign_models.save, which refers to it.")
