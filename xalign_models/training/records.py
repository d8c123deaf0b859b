"""Files of a training: its identity, its checkpoints, its log."""

import json
import logging
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xalign_models import assets
from xalign_models.errors import FileError, ModelError, one_line
from xalign_models.files import is_number, read_json, safetensors_header
from xalign_models.paths import atomic_write_text

logger = logging.getLogger(__name__)

LOG = "training_log.jsonl"
"""The log: JSON objects of three kinds, in order of time.

``step``: an optimisation step's loss, gradient norms (in total and of each part), learning rate, rows and, of texts
that are encoded in the step, tokens.
``measure``: measurements on held-out text, before the first step and after some of the others.
``verdict``: whether the model learnt anything, at the end.
All have ``epoch`` (fractional within an epoch), ``step`` and ``seconds`` since the beginning.
"""
STATE = "state.pt"
"""State of the instruments in a checkpoint."""
WEIGHTS = "trained.safetensors"
"""The trained weights of a checkpoint; all other weights equal the initial model's."""
BESIDE = ("optimizer*", "scheduler.pt", "rng_state*.pth")
"""Files of a checkpoint besides the weights; the optimiser's is a folder if its shards are separate."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "peft", "accelerate")
"""Packages that affect a training."""


def finite(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A log entry without non-finite numbers, which JSON cannot represent."""
    return {name: value for name, value in entry.items() if not isinstance(value, float) or is_number(value)}


def json_lines(log: list[dict[str, Any]]) -> str:
    """A log as text: one JSON object per line, without non-finite numbers."""
    return "".join(json.dumps(finite(entry), allow_nan=False) + "\n" for entry in log)


def training_record(directory: Path) -> dict[str, Any]:
    """The record of the training in a model's card; empty if there is none."""
    try:
        training = read_json(directory / assets.CARD)["training"]
    except (FileError, KeyError, TypeError):
        return {}
    return training if isinstance(training, dict) else {}


def claim(folder: Path, identity: Mapping[str, Any], output: Path) -> None:
    """Start a training of the model ``output`` in ``folder``, or check that the training started there is the same.

    Raises:
        ModelError: The folder has checkpoints of another training; the message names the fields that differ.
    """
    path = folder / "config.json"
    try:
        fields = differing(read_json(path), identity)
        if not fields:
            return
    except FileError as error:  # no training was started, or the file is damaged
        fields = [one_line(error)] if path.exists() else []
    if fields and any(folder.glob("checkpoint*")):
        raise ModelError(
            f"{folder} holds checkpoints of another training for {output}: {', '.join(fields)}. Give the same "
            "options to resume it, choose another --output, or remove that folder to start over."
        )
    shutil.rmtree(folder, ignore_errors=True)
    atomic_write_text(path, json.dumps(identity, indent=2) + "\n")


def differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The fields in which two configurations differ, with both values unless one is a fingerprint."""
    before, after = dict(_flat(then)), dict(_flat(now))
    return [
        key
        if _is_digest(after.get(key)) or _is_digest(before.get(key))
        else f"{key} ({before.get(key)} then, {after.get(key)} now)"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.search(r"[0-9a-f]{40}", value) is not None


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; the trainer writes its state last, but other files may be lost or truncated."""
    complete = []
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            _check_files(state.parent)
            complete.append((int(read_json(state)["global_step"]), state.parent))
        except (FileError, OSError, ValueError, KeyError, TypeError, OverflowError):
            logger.warning("%s is incomplete; resuming from an earlier checkpoint.", state.parent)
    return max(complete)[1] if complete else None


def _check_files(checkpoint: Path) -> None:
    """Raise FileError if a file is missing or truncated; reads only the weights' header and the archives' ends."""
    safetensors_header(checkpoint / WEIGHTS)
    archives = [file for file in checkpoint.iterdir() if file.suffix in (".pt", ".pth", ".bin")]
    if not all(any(checkpoint.glob(pattern)) for pattern in BESIDE) or not all(map(zipfile.is_zipfile, archives)):
        raise FileError(f"{checkpoint} is incomplete.")
