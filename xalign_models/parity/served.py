"""A served model: its vectors with their lengths, and the vectors of its variants."""

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.sentence_transformer.modules import Normalize

from xalign_models import assets
from xalign_models.backbones import policy
from xalign_models.backbones.loading import text_prompts
from xalign_models.backbones.pipeline import token_counts
from xalign_models.backbones.sources import find_source
from xalign_models.device import pick_device
from xalign_models.errors import ModelError
from xalign_models.linalg.arrays import Float64, unit
from xalign_models.models.building import load_encoder, raw_encoder
from xalign_models.models.names import locate
from xalign_models.specs import Vectors
from xalign_models.store import EmbeddingStore


class Served:
    """A served model.

    Args:
        model: A name, ``openai:...``, ``vectors:FILE``, a directory or a hub id.
        device: cpu, cuda or mps; by default the best available.
        store: Store of raw vectors; None always encodes.
        **fields: Fields of the backbone's spec, e.g. ``truncate_dim=256``.

    Attributes:
        prompts: Its prompts, by key.
        unit: Whether it normalises its vectors.

    Raises:
        XAlignError: The model is unavailable.
    """

    def __init__(
        self, model: str, device: str | None = None, store: EmbeddingStore | None = None, **fields: Any
    ) -> None:
        if fields.get("vectors") == Vectors.INT8:
            raise ModelError(
                "--vectors int8 does not apply: each model would be rounded by its own ranges, which hides "
                "differences; leave the option out."
            )
        self.model, self.device, self.store = model, pick_device(device), store
        self.encoder = load_encoder(model, device=device, store=store, **fields)
        self.prompts = self.encoder.prompts
        located = locate(model, **fields)
        self.spec = None if located.spec is None else located.spec.backbone
        self.unit = bool(located.saved) or self._is_normalised()

    def _is_normalised(self) -> bool:
        """Whether Normalize is among a checkpoint's modules; False for other sources, True for a bare backbone."""
        assert self.spec is not None
        if find_source(self.spec.model):
            return False
        try:
            classes = policy.module_classes(assets.resolve(self.spec.model, self.spec.revision).files)
        except ModelError:  # no modules.json
            return True
        return any(issubclass(kind, Normalize) for kind in classes.values())

    @property
    def can_vary(self) -> bool:
        """Whether it is a checkpoint, which can be loaded with another pooling, precision or length."""
        return self.spec is not None and find_source(self.spec.model) is None

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer, None if unavailable."""
        tokenizer = getattr(self.encoder.raw.modules[0], "tokenizer", None)
        return tokenizer if callable(tokenizer) else None

    def lengths(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Length of each text in tokens, without a limit; in characters without a tokenizer."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            return np.array([len(text) for text in texts])
        return np.array(token_counts(SimpleNamespace(tokenizer=tokenizer, max_seq_length=None), texts))

    def vectors(
        self, texts: Sequence[str], languages: Sequence[str], prompt: str | None = None, **changes: Any
    ) -> Float64:
        """Its vectors (n, d), float64; ``prompt`` replaces its own, ``changes`` fields of the backbone's spec.

        A prompt that is none of the model's goes with the maps of its default prompt.
        """
        raw = self.encoder.raw
        if changes:
            assert self.spec is not None
            raw = raw_encoder(dataclasses.replace(self.spec, **changes), self.device, self.store)
        default = self.prompts.get("default", "")
        prompts = [self.prompts.get(code, default) if prompt is None else prompt for code in languages]
        encoded = torch.from_numpy(raw.encode(texts, prompts))
        features: dict[str, Any] = {"sentence_embedding": encoded, "lang": list(languages)}
        fitted = text_prompts(self.prompts)
        features["prompt"] = prompt if prompt in fitted else fitted[0]
        with torch.inference_mode():
            for module in self.encoder.tail:
                features = features if isinstance(module, Normalize) else module(features)
        vectors: Float64 = features["sentence_embedding"].numpy().astype(np.float64)
        return unit(vectors) if self.unit else vectors
