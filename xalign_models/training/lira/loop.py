"""A training loop of any stage: steps, epochs, a log, and checkpoints from which it goes on exactly."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm.auto import tqdm

from xalign_models import onednn
from xalign_models.errors import ModelError
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.training.records import LOG, json_lines

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
CHECKPOINT_SECONDS = 300
"""From one checkpoint to the next: the most that a killed training has to do again."""

Metrics = dict[str, Any]


class Stage(Protocol):
    """What the loop runs. Its batches depend on the epoch alone, so that an interrupted epoch goes on where it was."""

    epochs: int
    max_steps: int | None
    seed: int

    def batches(self, epoch: int) -> int:
        """Make an epoch's batches and say how many."""

    def step(self, index: int) -> Metrics:
        """Learn from a batch; ``loss`` is among what it measures."""

    def measure(self, epoch: int) -> Metrics:
        """What the epoch has come to, on text that is not trained on."""

    def state_dict(self) -> dict[str, Any]:
        """Weights and all else that changes, as tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state_dict``."""


def run(stage: Stage, folder: Path, hint: str) -> list[Metrics]:
    """Run a stage to its end, from its checkpoint in ``folder`` if there is one.

    Args:
        stage: It.
        folder: For the checkpoint and the log.
        hint: What to do about a loss that is not finite.

    Returns:
        The log: an entry per step and one per epoch, told apart by ``kind``; each has ``step`` and ``seconds``.

    Raises:
        ModelError: The loss is not finite; the last checkpoint is kept.
    """
    torch.manual_seed(stage.seed)
    log: list[Metrics] = []
    done, begun, before, start = 0, (0, 0), 0.0, time.perf_counter()
    path = folder / CHECKPOINT
    if path.is_file():
        state = torch.load(path, weights_only=True, map_location="cpu")
        stage.load_state_dict(state["stage"])
        log, done, begun, before = state["log"], state["done"], tuple(state["begun"]), state["seconds"]
        _set_random(state["random"])
    saved = time.perf_counter()

    def seconds() -> float:
        return round(before + time.perf_counter() - start, 1)

    def save(epoch: int, index: int) -> None:
        nonlocal saved
        state = {"stage": stage.state_dict(), "log": log, "done": done, "begun": [epoch, index], "seconds": seconds(),
                 "random": _random()}  # fmt: skip
        with atomic_file(path) as temporary:
            torch.save(state, temporary)
        atomic_write_text(folder / LOG, json_lines(log))
        saved = time.perf_counter()

    def finished() -> bool:
        return stage.max_steps is not None and done >= stage.max_steps

    with tqdm(desc="train", unit=" steps", disable=None) as bar, onednn.Linear():
        for epoch in range(begun[0], stage.epochs):
            if finished():
                break
            count = stage.batches(epoch)
            bar.reset(total=stage.max_steps or count * stage.epochs)
            bar.update(done)
            for index in range(begun[1] if epoch == begun[0] else 0, count):
                metrics = stage.step(index)
                if not math.isfinite(metrics["loss"]):
                    kept = f" The last checkpoint is kept in {path}." if path.is_file() else ""
                    raise ModelError(f"The loss is not finite in step {done + 1}; {hint}.{kept}")
                done += 1
                log.append({"kind": "step", "epoch": epoch + 1, "step": done, "seconds": seconds(), **metrics})
                bar.update(1)
                bar.set_postfix(loss=f"{metrics['loss']:.3f}")
                if time.perf_counter() - saved > CHECKPOINT_SECONDS:
                    save(epoch, index + 1)
                if finished():
                    break
            log.append({"kind": "epoch", "epoch": epoch + 1, "step": done, "seconds": seconds(),
                        **_means(log, epoch + 1), **stage.measure(epoch)})  # fmt: skip
            save(epoch + 1, 0)
    return log


def _means(log: list[Metrics], epoch: int) -> Metrics:
    """Means of what the epoch's steps measured, where they did."""
    steps = [entry for entry in log if entry["kind"] == "step" and entry["epoch"] == epoch]
    columns = {name: [entry[name] for entry in steps if entry.get(name) is not None] for entry in steps[:1]
               for name in entry if name not in ("kind", "epoch", "step", "seconds")}  # fmt: skip
    return {name: sum(values) / len(values) for name, values in columns.items() if values}


def _random() -> list[torch.Tensor]:
    """The states of torch's generators, of the CPU first."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def _set_random(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if torch.cuda.is_available() and len(states) == 1 + torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states[1:])
