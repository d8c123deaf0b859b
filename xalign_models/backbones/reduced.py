"""Truncated (Matryoshka), unit, binary and int8 vectors: the module after a backbone that reduces its vectors."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.modules.module import Module
from sentence_transformers.util import quantize_embeddings

from xalign_models.errors import ModelError
from xalign_models.specs import Vectors


class Reduced(Module):
    """Truncates ``features["sentence_embedding"]``, then normalises or quantises it if requested.

    Binary values are 1 and -1, so the cosine of two vectors is one minus twice their share of differing bits, the
    ranking of an index of packed bits. They equal the bits of sentence-transformers' ``quantize_embeddings(...,
    "ubinary")``.

    int8 values, -128 to 127, equal those of ``quantize_embeddings(..., "int8", ranges)`` for vectors of unit length.

    Its import path is a file format: do not move it.

    Args:
        truncate_dim: Number of dimensions to keep; None for all.
        vectors: ``float32``, ``unit``, ``binary`` or ``int8``.
        ranges: Minimum and maximum of each dimension, (2, d), for ``int8``.

    Raises:
        ModelError: ``int8`` has no ranges or damaged ranges.
    """

    config_keys = ["truncate_dim", "vectors", "ranges"]

    def __init__(
        self,
        truncate_dim: int | None = None,
        vectors: str = Vectors.FLOAT32,
        ranges: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.truncate_dim, self.vectors, self.ranges = truncate_dim, str(Vectors(vectors)), ranges
        if self.vectors == Vectors.INT8:
            self._ranges = np.array(ranges or [[]], dtype=np.float32)
            is_whole = len(self._ranges) == 2 and np.isfinite(self._ranges).all()
            if not is_whole or (np.diff(self._ranges, axis=0) < 0).any():
                raise ModelError("int8 vectors need the range of each dimension; fit and save the model again.")

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """From (n, d) to (n, truncate_dim).

        Raises:
            ModelError: The vectors have too few dimensions.
        """
        features["sentence_embedding"] = self.reduce(features["sentence_embedding"])
        return features

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """:meth:`forward` of the vectors (n, d) themselves."""
        if self.truncate_dim is not None and self.truncate_dim > vectors.shape[1]:
            raise ModelError(f"--truncate-dim {self.truncate_dim}: the vectors have {vectors.shape[1]} dimensions.")
        vectors = vectors[:, : self.truncate_dim]
        if self.vectors == Vectors.UNIT:
            return unit(vectors)
        if self.vectors == Vectors.INT8:
            codes: Any = quantize_embeddings(unit(vectors), "int8", ranges=self._ranges)
            return torch.from_numpy(codes).to(vectors)
        return torch.where(vectors > 0, 1.0, -1.0) if self.vectors == Vectors.BINARY else vectors

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration."""
        self.save_config(output_path)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows at unit length, in float32."""
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def ranges_of(parts: Iterable[npt.NDArray[np.float32]], truncate_dim: int | None) -> list[list[float]]:
    """Minimum and maximum of each dimension, (2, d), over parts (n, d), truncated and scaled to unit length."""
    ends = [torch.aminmax(unit(torch.from_numpy(part)[:, :truncate_dim]), dim=0) for part in parts]
    low, high = (torch.stack(side) for side in zip(*ends, strict=True))
    return [low.amin(dim=0).tolist(), high.amax(dim=0).tolist()]
