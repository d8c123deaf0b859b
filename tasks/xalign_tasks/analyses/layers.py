"""Vectors of all layers of a backbone from a single forward pass."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from xalign_models import assets
from xalign_models.analysis import Request
from xalign_models.backbones import loading
from xalign_models.backbones.checkpoint import open_config
from xalign_models.backbones.raw import RawEncoder, key
from xalign_models.device import pick_device
from xalign_models.errors import AssetError, ModelError
from xalign_models.models.building import raw_encoder
from xalign_models.specs import BackboneSpec
from xalign_models.store import EmbeddingStore
from xalign_tasks.analyses.spaces import Vectors

BATCH = 2048
"""Number of texts whose vectors are stored at a time."""


def at_every_layer(spec: BackboneSpec) -> tuple[BackboneSpec, ...]:
    """The same backbone at layer 0 (the embeddings), 1, ..., the last.

    Raises:
        ModelError: The backbone is not a transformer.
        AssetError: The checkpoint is unavailable.
    """
    resolved = assets.resolve(spec.model, spec.revision)
    try:
        count = int(open_config(resolved).num_hidden_layers)
    except (AssetError, AttributeError):
        raise ModelError(f"{spec.name} has no layers to choose from; name a transformer.") from None
    return tuple(dataclasses.replace(spec, layer=layer) for layer in range(count + 1))


def vectors_by_layer(request: Request, backbone: BackboneSpec, texts: Mapping[str, Sequence[str]]) -> Iterator[Vectors]:
    """The vectors of each layer, the embeddings first, after one forward pass over ``texts`` (language to texts).

    Raises:
        ModelError: The backbone is not a transformer.
        AssetError: The checkpoint is unavailable.
    """
    device, prompts = pick_device(request.device), loading.open_backbone(backbone).prompts
    layers = at_every_layer(backbone)
    for language, rows in texts.items():
        prompt = loading.prompt_in(prompts, language)
        fill(layers, rows, prompt, device, request.store, f"{backbone.name} {language}, all layers")
    for layer in layers:
        yield Vectors(layer, raw_encoder(layer, device, request.store))


class EveryLayer(nn.Module):
    """Pools each layer's (b, s, d); ``sentence_embedding`` is (b, (layers + 1) d), the embeddings first."""

    def __init__(self, pooling: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Pool ``features["all_layer_embeddings"]``."""
        layers = features["all_layer_embeddings"]
        pooled = [self.pooling({**features, "token_embeddings": layer})["sentence_embedding"] for layer in layers]
        return {**features, "sentence_embedding": torch.cat(pooled, dim=1)}


def fill(
    layers: Sequence[BackboneSpec], texts: Sequence[str], prompt: str, device: str, store: EmbeddingStore, label: str
) -> int:
    """Store the vectors of texts at every layer of :func:`at_every_layer`, for each layer's own RawEncoder.

    Returns:
        Number of encoded texts; those that the store has at every layer are skipped.
    """
    namespaces = [loading.open_backbone(layer).fingerprint for layer in layers]
    distinct = {key(prompt, text): text for text in texts}
    stored = [store.get(namespace, list(distinct)) for namespace in namespaces]
    missing = [hash_ for hash_, *vectors in zip(distinct, *stored, strict=True) if any(v is None for v in vectors)]
    raw = RawEncoder("", lambda: _modules(layers[-1], device), device)
    for start in range(0, len(missing), BATCH):
        keys = missing[start : start + BATCH]
        rows = raw.encode([distinct[hash_] for hash_ in keys], prompt, label)
        for namespace, vectors in zip(namespaces, np.split(rows, len(layers), axis=1), strict=True):
            store.put(namespace, keys, vectors)
    return len(missing)


def _modules(last: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    first: Any
    first, pooling = loading.shared_modules(last, device)
    first.model.config.output_hidden_states = True
    return first, EveryLayer(pooling)
