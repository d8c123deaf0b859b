"""Few-shot contrastive alignment, from a backbone's spec to the directory of the trained model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from xalign_models import corpora
from xalign_models.backbones import loading
from xalign_models.configuration import to_mapping
from xalign_models.errors import ModelError
from xalign_models.models import building
from xalign_models.specs import ModelSpec
from xalign_models.training.contrastive import training
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.pairs import held_out_pairs, training_pairs
from xalign_models.training.processes import share_of
from xalign_models.training.session import train_once, training_device


def train(spec: ModelSpec, config: ContrastiveConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train LoRA weights on a backbone and write the model as a sentence-transformers directory.

    The same call resumes an interrupted training, see :func:`~xalign_models.training.session.train_once`.

    Returns:
        The spec of the trained model.

    Raises:
        ModelError: The backbone cannot be trained, the checkpoints belong to another training, or the loss
            is not finite.
        DataError: The corpus is missing or has fewer rows.
    """
    if spec.alignment or spec.backbone.tuned:
        raise ModelError(f"--backbone: {spec.name} is already aligned or trained; give its backbone.")
    dtype = config.dtype or spec.backbone.dtype
    config = dataclasses.replace(config, dtype=dtype)
    loaded = ModelSpec(dataclasses.replace(spec.backbone, dtype=dtype))
    device = training_device(device)
    share_of(config.accumulation, "accumulation")
    corpus = corpora.load(config.pairs)
    pairs, held_out = training_pairs(corpus, config), held_out_pairs(corpus, config)

    def build() -> SentenceTransformer:
        model = building.build(loaded, device="cpu")  # the trainer moves it to the device of its process
        training.add_lora(model, config)
        return model

    def fit(model: SentenceTransformer, folder: Path) -> list[dict[str, Any]]:
        return training.fit(model, pairs, config, folder, device, held_out)

    tuned = ModelSpec(dataclasses.replace(spec.backbone, tuned=config.label))
    identity = {
        "backbone": loading.open_backbone(loaded.backbone).fingerprint,
        "text": corpus.fingerprint([*config.languages, config.pivot]),
        **to_mapping(config),
    }
    train_once(tuned, identity, output, corpus.trains, build, None if config.max_steps == 0 else fit)
    return tuned
