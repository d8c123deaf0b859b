"""From a backbone's spec to the directory of a trained model."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xalign_models import assets, corpora, registry
from xalign_models.backbones import loading
from xalign_models.contrastive.config import ContrastiveConfig
from xalign_models.contrastive.pairs import training_pairs
from xalign_models.corpora import Corpus
from xalign_models.errors import ModelError
from xalign_models.paths import atomic_write_text
from xalign_models.specs import ModelSpec

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "sentence-transformers", "peft", "accelerate")


def train(spec: ModelSpec, config: ContrastiveConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train LoRA weights on a backbone and write the model as a sentence-transformers directory.

    Checkpoints lie beside ``output``, in ``.<name>.training``, until the model is written: the same call goes on from
    the last one. Among the processes of ``accelerate launch`` the first one writes.

    Args:
        spec: A backbone, neither tuned nor aligned.
        config: Hyperparameters and text.
        output: Directory; one that is there is replaced at the end.
        device: cpu, cuda or mps; by default the best there is.

    Returns:
        The spec of the trained model.

    Raises:
        ModelError: The backbone cannot be trained, the checkpoints are another training's, or the loss is not finite.
        DataError: The corpus is missing or has fewer rows.
    """
    from xalign_models.contrastive import training
    from xalign_models.contrastive.objective import add_lora, own_randomness

    dtype = config.dtype or spec.backbone.dtype
    config = dataclasses.replace(config, dtype=dtype)
    loaded = ModelSpec(dataclasses.replace(spec.backbone, dtype=dtype))
    device = _check(spec, config, loading.pick_device(device))
    corpus = corpora.load(config.pairs)
    pairs = training_pairs(corpus, config)
    identity = _identity(loaded, config, corpus)
    tuned = ModelSpec(dataclasses.replace(spec.backbone, tuned=config.label))
    if _is_trained(output, identity):
        logger.warning("%s was trained so already; remove it to train it again.", output)
        return tuned
    folder = output.parent / f".{output.name}.training"
    if training.is_main_process():
        _claim(folder, identity, output)

    model = registry.build(loaded, device="cpu")  # the trainer moves it to the device of its process
    add_lora(model, config)
    log: list[dict[str, Any]] = []
    if config.max_steps != 0:
        with own_randomness():
            log = training.fit(model, pairs, config, folder, device)
    if training.is_main_process():
        model.xalign_spec = tuned
        provenance = {
            "datasets": sorted(corpus.trains),
            "config": identity,
            "steps": log[-1]["step"] if log else 0,
            "seconds": log[-1]["seconds"] if log else 0.0,
            "versions": {package: version(package) for package in PACKAGES},
        }
        registry.save(model.to("cpu"), output, training=provenance, files={training.LOG: training.json_lines(log)})
        shutil.rmtree(folder, ignore_errors=True)
    return tuned


def _check(spec: ModelSpec, config: ContrastiveConfig, device: str) -> str:
    from xalign_models.contrastive.training import process_count

    if spec.alignment or spec.backbone.tuned:
        raise ModelError(f"--backbone: {spec.name} is aligned or trained already; give its backbone.")
    if ":" in device:
        raise ModelError(
            f"--device {device}: give cuda, and CUDA_VISIBLE_DEVICES={device.partition(':')[2]} before it."
        )
    if config.accumulation % process_count():
        raise ModelError(
            f"--accumulation {config.accumulation} cannot be shared by {process_count()} processes; "
            "launch a number that divides it."
        )
    return device


def _identity(spec: ModelSpec, config: ContrastiveConfig, corpus: Corpus) -> dict[str, Any]:
    """What determines a training, as it comes back from JSON: checkpoints of another one are not gone on with."""
    languages = [*config.languages, config.pivot]
    return {
        "backbone": loading.fingerprint(spec.backbone),
        "text": corpus.fingerprint(languages),
        **config.to_dict(),
    }


def _is_trained(output: Path, identity: dict[str, Any]) -> bool:
    try:
        card = json.loads((output / assets.CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(card.get("training", {}).get("config") == identity)


def _claim(folder: Path, identity: dict[str, Any], output: Path) -> None:
    """Begin a training in ``folder``, or make sure that the one that was begun there is the same.

    Raises:
        ModelError: It is another one; the message names the fields that differ.
    """
    path = folder / "config.json"
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # nothing was begun
        shutil.rmtree(folder, ignore_errors=True)
        atomic_write_text(path, json.dumps(identity, indent=2) + "\n")
        return
    differing = [
        key if key in ("backbone", "text") else f"{key} ({begun.get(key)} then, {identity.get(key)} now)"
        for key in sorted({*begun, *identity})
        if begun.get(key) != identity.get(key)
    ]
    if differing:
        raise ModelError(
            f"{folder} holds checkpoints of another training for {output}: {', '.join(differing)}. Give the same "
            "options to go on with it, another --output, or remove that folder to start over."
        )
