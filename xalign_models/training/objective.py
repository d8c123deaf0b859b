"""What a method brings to the trainer: a loss of a batch, and what is to be read off the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sentence_transformers.base.modules import Module
from torch import Tensor, nn


class Verdict(NamedTuple):
    """What a training has come to, as its card and its last line say it."""

    learnt: bool
    """Whether held-out text shows that anything was learnt."""
    text: str
    """A sentence with the numbers."""


class Instruments:
    """What a method reads off its training, and what it keeps beside the weights; each part is optional.

    Attributes:
        every: Optimisation steps from one measurement to the next, beside those before the first step and at the end
            of each epoch; None is those alone.
    """

    every: int | None = None

    def rate(self, step: int, steps: int) -> float | None:
        """Share of the learning rate in a step of so many; None where the trainer's own schedule holds."""
        return None

    def step(self) -> dict[str, Any]:
        """Called after each optimisation step; what the step measured, for its entry in the log."""
        return {}

    def measure(self) -> dict[str, Any]:
        """What held-out text says of the model as it is, for an entry of its own; nothing if there is none."""
        return {}

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> Verdict | None:
        """What was learnt, by the first and the last measurement; None if they do not say."""
        return None

    def state(self) -> dict[str, Any]:
        """All that changes beside the weights, as tensors and plain data, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""


class Objective(Module, Instruments):
    """A module that makes a batch of rows and computes its loss, ``features["loss"]``, in one forward pass.

    It stands around the model for the training alone, so that what shards or copies a model among processes sees one
    forward pass a step.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Rows of the training set as the tensors of one batch."""
        raise NotImplementedError

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Not here: the model within is what is kept."""
        raise NotImplementedError


class ObjectiveLoss(nn.Module):
    """An objective's loss as sentence-transformers' trainer wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, sentence_features: Sequence[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch."""
        loss: Tensor = self.model(dict(sentence_features[0]))["loss"]
        return loss


@dataclass(frozen=True)
class Collator:
    """An objective's batches as the trainer wants them.

    Attributes:
        objective: Whose batches they are.
    """

    objective: Objective

    valid_label_columns = ()

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """All features of a batch together, see :meth:`xalign_models.training.trainer.Trainer.collect_features`."""
        return {"features": self.objective.collate(rows)}
