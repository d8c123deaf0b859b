"""Shorter and binary vectors: what follows a backbone whose vectors are cut (Matryoshka) or kept as signs."""

from __future__ import annotations

from typing import Any, Self

import torch
from sentence_transformers.base.modules.module import Module

from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Vectors


class Reduced(Module):
    """Keeps the first dimensions of ``features["sentence_embedding"]``, then their signs where that is asked for.

    Signs are 1 and -1, so that a cosine of two vectors is one minus twice their share of differing bits: what an index
    of packed bits ranks by. They are the bits of sentence-transformers' ``quantize_embeddings(..., "ubinary")``.

    Its import path is a file format: do not move it.

    Args:
        truncate_dim: Dimensions that are kept; None is all.
        vectors: ``float32`` or ``binary``.
    """

    config_keys = ["truncate_dim", "vectors"]

    def __init__(self, truncate_dim: int | None = None, vectors: str = Vectors.FLOAT32) -> None:
        super().__init__()
        self.truncate_dim, self.vectors = truncate_dim, str(Vectors(vectors))

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """From (n, d) to (n, truncate_dim).

        Raises:
            ModelError: There are fewer dimensions than are to be kept.
        """
        features["sentence_embedding"] = self.reduce(features["sentence_embedding"])
        return features

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """:meth:`forward` of the vectors (n, d) themselves."""
        if self.truncate_dim is not None and self.truncate_dim > vectors.shape[1]:
            raise ModelError(f"--truncate-dim {self.truncate_dim}: the vectors have {vectors.shape[1]} dimensions.")
        vectors = vectors[:, : self.truncate_dim]
        return torch.where(vectors > 0, 1.0, -1.0) if self.vectors == Vectors.BINARY else vectors

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration."""
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> Self:
        """Read what ``save`` wrote."""
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        options = {name: kwargs[name] for name in names if name in kwargs}
        return cls(**cls.load_config(model_name_or_path, **options))


def reduction(spec: BackboneSpec) -> tuple[Reduced, ...]:
    """The module that a spec's vectors go through; none where they are whole."""
    return () if spec.whole == spec else (Reduced(spec.truncate_dim, spec.vectors),)
