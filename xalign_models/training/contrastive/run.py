"""From a backbone's spec to the directory of a trained model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import corpora, models
from xalign_models.backbones import loading
from xalign_models.configuration import to_mapping
from xalign_models.corpora import Corpus
from xalign_models.errors import ModelError
from xalign_models.specs import ModelSpec
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.pairs import held_out_pairs, training_pairs
from xalign_models.training.processes import process_count

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def train(spec: ModelSpec, config: ContrastiveConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train LoRA weights on a backbone and write the model as a sentence-transformers directory.

    Checkpoints lie beside ``output``, in ``.<name>.training``, until the model is written: the same call resumes from
    the last one. Among the processes of ``accelerate launch`` the first one writes.

    Args:
        spec: A backbone, neither tuned nor aligned.
        config: Hyperparameters and text.
        output: Directory; an existing one is replaced at the end.
        device: cpu, cuda or mps; by default the best available.

    Returns:
        The spec of the trained model.

    Raises:
        ModelError: The backbone cannot be trained, the checkpoints belong to another training, or the loss
            is not finite.
        DataError: The corpus is missing or has fewer rows.
    """
    from xalign_models.training.contrastive import training
    from xalign_models.training.contrastive.objective import add_lora
    from xalign_models.training.session import train_once

    dtype = config.dtype or spec.backbone.dtype
    config = dataclasses.replace(config, dtype=dtype)
    loaded = ModelSpec(dataclasses.replace(spec.backbone, dtype=dtype))
    device = _check(spec, config, loading.pick_device(device))
    corpus = corpora.load(config.pairs)
    pairs, held_out = training_pairs(corpus, config), held_out_pairs(corpus, config)

    def build() -> SentenceTransformer:
        model = models.build(loaded, device="cpu")  # the trainer moves it to the device of its process
        add_lora(model, config)
        return model

    def fit(model: SentenceTransformer, folder: Path) -> list[dict[str, Any]]:
        return training.fit(model, pairs, config, folder, device, held_out)

    tuned = ModelSpec(dataclasses.replace(spec.backbone, tuned=config.label))
    identity = _identity(loaded, config, corpus)
    train_once(tuned, identity, output, corpus.trains, build, None if config.max_steps == 0 else fit)
    return tuned


def _check(spec: ModelSpec, config: ContrastiveConfig, device: str) -> str:
    if spec.alignment or spec.backbone.tuned:
        raise ModelError(f"--backbone: {spec.name} is aligned or trained already; give its backbone.")
    if ":" in device:
        raise ModelError(f"--device {device}: give cuda, and CUDA_VISIBLE_DEVICES={device.partition(':')[2]}.")
    if config.accumulation % process_count():
        raise ModelError(
            f"--accumulation {config.accumulation} cannot be shared by {process_count()} processes; "
            "launch a number that divides it."
        )
    return device


def _identity(spec: ModelSpec, config: ContrastiveConfig, corpus: Corpus) -> dict[str, Any]:
    """What determines a training, as it comes back from JSON: a training only resumes from its own checkpoints."""
    languages = [*config.languages, config.pivot]
    return {
        "backbone": loading.open_backbone(spec.backbone).fingerprint,
        "text": corpus.fingerprint(languages),
        **to_mapping(config),
    }
