"""The frame of a training: from the check whether it is done already to the saved model."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.models.saving import save
from xalign_models.paths import in_turn
from xalign_models.specs import ModelSpec
from xalign_models.training.processes import is_main_process, own_randomness, wait_for_all
from xalign_models.training.records import LOG, claim, is_trained, json_lines, last_checkpoint, versions
from xalign_models.training.trainer import is_divided, load_trained

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)


def train_once(
    spec: ModelSpec,
    identity: Mapping[str, Any],
    output: Path,
    datasets: Iterable[str],
    build: Callable[[], SentenceTransformer],
    fit: Callable[[SentenceTransformer, Path], list[dict[str, Any]]] | None,
) -> None:
    """Train a model and write it, unless ``output`` is the model of just this training.

    Checkpoints lie beside ``output``, in ``.<name>.training``, until the model is written: the same call resumes from
    the last one. Among the processes of ``accelerate launch`` the first one writes.

    Args:
        spec: Spec of the trained model.
        identity: Fields that determine the training, as JSON preserves them.
        output: Directory; an existing one is replaced at the end.
        datasets: mteb's names of the data sets and tasks that hold the text.
        build: Makes the initial model, on the CPU.
        fit: Trains it in place and returns the log, see :data:`~xalign_models.training.records.LOG`; its second
            argument is the folder for checkpoints. None trains nothing.

    Raises:
        ModelError: The checkpoints belong to another training, the loss is not finite, or a file cannot be written.
    """
    folder = output.parent / f".{output.name}.training"
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"{output} is being trained by another process; this one waits for it."
    with in_turn(folder.with_suffix(".lock"), waiting) if is_main_process() else nullcontext():
        wait_for_all()  # no process looks for the model before the first one has its turn
        _train(spec, identity, output, datasets, build, fit, folder)
    wait_for_all()


def _train(
    spec: ModelSpec,
    identity: Mapping[str, Any],
    output: Path,
    datasets: Iterable[str],
    build: Callable[[], SentenceTransformer],
    fit: Callable[[SentenceTransformer, Path], list[dict[str, Any]]] | None,
    folder: Path,
) -> None:
    if is_trained(output, identity):
        logger.warning("%s was trained so already; remove it to train it again.", output)
        if is_main_process():
            shutil.rmtree(folder, ignore_errors=True)  # of a training that was killed when all was written
        return
    if is_main_process():
        claim(folder, identity, output)
    model = build()
    log: list[dict[str, Any]] = []
    if fit is not None:
        with own_randomness():
            log = fit(model, folder)
    if is_main_process():
        if fit is not None and is_divided(model):
            model = build()
            load_trained(model, last_checkpoint(folder) or folder)
        model.xalign_spec = spec
        provenance: dict[str, Any] = {
            "datasets": sorted(datasets),
            "config": identity,
            "steps": log[-1]["step"] if log else 0,
            "seconds": log[-1]["seconds"] if log else 0.0,
            "versions": versions(),
        }
        if log and log[-1]["kind"] == "verdict":
            provenance |= {"learnt": log[-1]["learnt"], "verdict": log[-1]["text"]}
        save(model.to("cpu"), output, training=provenance, files={LOG: json_lines(log)})
        shutil.rmtree(folder, ignore_errors=True)
