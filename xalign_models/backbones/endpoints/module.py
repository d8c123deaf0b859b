"""A served model as the first module of a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.modules.input_module import InputModule

from xalign_models.backbones.inputs import prompt_of, split_inputs
from xalign_models.backbones.templates import prompted
from xalign_models.errors import ModelError
from xalign_models.languages import is_canonical

if TYPE_CHECKING:
    from xalign_models.backbones.endpoints.endpoint import Endpoint
    from xalign_models.backbones.pipeline import Batch


class EndpointModule(InputModule):
    """Sends texts to a server. It has nothing to save: a saved model points to the server.

    Args:
        endpoint: The server and its model.
        prompts: Those of the spec; the ones by language are for inputs that come without a prompt of the call's.
    """

    flush = 1
    """Vectors that are stored at a time: each answer at once, because each was paid for."""

    def __init__(self, endpoint: Endpoint, prompts: Mapping[str, str]) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.prompts = {key: text for key, text in prompts.items() if is_canonical(key)}
        self.default_lang: str | None = None

    def get_embedding_dimension(self) -> int:
        """Of the vectors."""
        return self.endpoint.probe.dimension

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Put prompts on texts, or on ``{"text": ..., "lang": ...}``.

        Raises:
            LanguageError: The prompts are by language, and an input has none or one without a prompt.
        """
        texts, languages = split_inputs(inputs, kwargs.get("lang") or self.default_lang)
        if prompt or not self.prompts:
            texts = [prompted(prompt or "", text) for text in texts]
        else:
            pairs = zip(languages, texts, strict=True)
            texts = [prompted(prompt_of(self.prompts, code), text) for code, text in pairs]
        return {"texts": texts, **({"lang": languages} if any(languages) else {})}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["sentence_embedding"]``, (n, d)."""
        texts = features.pop("texts")
        vectors = np.empty((len(texts), self.get_embedding_dimension()), dtype=np.float32)
        for batch, part in self.stream(texts, ""):
            vectors[batch.rows] = part
        features["sentence_embedding"] = torch.from_numpy(vectors)
        return features

    def stream(self, texts: Sequence[str], prompt: str) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Batches and their vectors, as they are answered."""
        return self.endpoint.stream(texts, prompt)

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Refuse: there are no weights here.

        Raises:
            ModelError: Always.
        """
        raise ModelError(f"{self.endpoint.model} has no weights here; xalign_models.save writes a pointer to it.")
