"""What a method gives the trainer: the loss of a batch, and measurements of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sentence_transformers.base.modules import Module
from torch import Tensor, nn


class TrainingOutcome(NamedTuple):
    """The outcome of a training, for the model's card and the last line of output."""

    learnt: bool
    """Whether held-out text shows that anything was learnt."""
    text: str
    """A sentence with the numbers."""


class Instruments:
    """What a method measures in training, and its state beside the weights; each part is optional.

    Attributes:
        every: Optimisation steps from one measurement to the next, in addition to those before the first step and at
            the end of each epoch; None for these alone.
    """

    every: int | None = None

    def rate(self, step: int, steps: int) -> float | None:
        """Factor of the learning rate in a step out of ``steps``; None follows the trainer's own schedule."""
        return None

    def step(self) -> dict[str, Any]:
        """Called after each optimisation step; returns its measurements, for the log."""
        return {}

    def measure(self) -> dict[str, Any]:
        """Measurements on held-out text, for a log entry of their own; empty without held-out text."""
        return {}

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Whether anything was learnt, by the first and last measurements; None if they do not tell."""
        return None

    def state(self) -> dict[str, Any]:
        """All changing state beside the weights, as tensors and plain data, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""


class Objective(Module, Instruments):
    """A module that collates rows into a batch and computes the loss, ``features["loss"]``, in one forward pass.

    It wraps the model in training alone, so that code that shards or copies a model among processes sees one forward
    pass per step.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Rows of the training set as the tensors of one batch."""
        raise NotImplementedError

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Unsupported: save the inner model instead."""
        raise NotImplementedError


class ObjectiveLoss(nn.Module):
    """Adapts an objective's loss to sentence-transformers' trainer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, sentence_features: Sequence[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch."""
        loss: Tensor = self.model(dict(sentence_features[0]))["loss"]
        return loss


@dataclass(frozen=True)
class Collator:
    """Adapts an objective's batches to the trainer.

    Attributes:
        objective: The objective that collates the rows.
    """

    objective: Objective

    valid_label_columns = ()

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """All features of a batch together, see :meth:`xalign_models.training.trainer.Trainer.collect_features`."""
        return {"features": self.objective.collate(rows)}
