"""A first module that gets its vectors from a server, a file or an mteb wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.modules.input_module import InputModule

from xalign_models.backbones.inputs import described, prompt_of, prompted, split_inputs
from xalign_models.backbones.raw import FLUSH
from xalign_models.errors import ModelError

if TYPE_CHECKING:
    from xalign_models.backbones.pipeline import Batch

Stream = Callable[[Sequence[str], str], "Iterator[tuple[Batch, npt.NDArray[np.float32]]]"]
"""Function from texts and their prompt to batches and their vectors (b, d), in any order."""


class Streamed(InputModule):
    """A module without weights. A saved model refers to it instead of containing it.

    Args:
        label: Name in messages.
        stream: Returns the vectors.
        flush: Vectors per write to the store.

    Attributes:
        prompts: Prompt by canonical language code, for calls without a prompt; ``default`` serves other languages.
    """

    def __init__(self, label: str, stream: Stream, flush: int = FLUSH) -> None:
        super().__init__()
        self.label, self.stream, self.flush = label, stream, flush
        self.prompts: Mapping[str, str] = {}
        self.default_lang: str | None = None

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Add prompts by language to texts, or to inputs ``{"text": ..., "lang": ...}``.

        Raises:
            LanguageError: The prompts are by language, and an input has no language or its language has no prompt.
        """
        texts, languages = split_inputs(inputs, kwargs.get("lang") or self.default_lang)
        if not prompt and self.prompts:
            pairs = zip(languages, texts, strict=True)
            texts = [prompted(prompt_of(self.prompts, code), text) for code, text in pairs]
        told = described(languages, prompt or self.prompts.get("default"))
        return {"texts": texts, "before": prompt or "", **told}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["sentence_embedding"]``, (n, d)."""
        batches = list(self.stream(features.pop("texts"), features.pop("before")))
        rows = np.concatenate([batch.rows for batch, _ in batches])
        vectors = np.concatenate([part for _, part in batches])[np.argsort(rows)]
        features["sentence_embedding"] = torch.from_numpy(vectors)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Refuse to save, because there are no weights.

        Raises:
            ModelError: Always.
        """
        raise ModelError(
            f"{self.label} has no weights on this machine; save the model with xalign_models.save, which refers to it."
        )
