"""The interface of a training method: the loss of a batch, and measurements during training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from xalign_models.training.processes import process_count


class TrainingOutcome(NamedTuple):
    """The outcome of a training, for the model's card and the last line of output."""

    learnt: bool
    """Whether the model improved on held-out text."""
    text: str
    """A sentence with the numbers."""

    @classmethod
    def of(cls, learnt: bool, text: str) -> TrainingOutcome:
        """The outcome, with an end to the sentence."""
        return cls(learnt, f"{text}." if learnt else f"{text}: nothing was learnt.")


class Instruments:
    """Measurements of a method in training, and its state beside the weights; every method is optional.

    Attributes:
        every: Optimisation steps between measurements, in addition to those before the first step and after each
            epoch; None for the latter alone.
    """

    every: int | None = None

    def step(self) -> dict[str, Any]:
        """Measurements of an optimisation step, for the log; the trainer calls it after each step."""
        return {}

    def measure(self) -> dict[str, Any]:
        """Measurements on held-out text, for a separate log entry; empty without held-out text."""
        return {}

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Whether the model learnt anything, from the first and last measurements; None if they cannot tell."""
        return None

    def state(self) -> dict[str, Any]:
        """All mutable state beside the weights, as tensors and plain data, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""


MEASURE = "measure"
"""The feature that asks an objective for its measurements instead of a loss."""


class Objective(Module, Instruments):
    """A module that collates rows into a batch and computes the loss, ``features["loss"]``, in one forward pass.

    It wraps the model during training, so that code that distributes a model among processes sees a single forward
    pass per step.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The tensors of one batch, from rows of the training set."""
        raise NotImplementedError

    def loss(self, features: dict[str, Any]) -> Tensor:
        """The loss of one batch."""
        raise NotImplementedError

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["loss"]``, or the measurements if the features ask for them."""
        if MEASURE in features:
            return {MEASURE: self.measure()}
        return {**features, "loss": self.loss(features)}

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
    """Adapts an objective's batches to the trainer."""

    objective: Objective

    valid_label_columns = ()

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The features of a batch, for :meth:`xalign_models.training.trainer.Trainer.collect_features`."""
        return {"features": self.objective.collate(rows)}


def cosine(anchors: Tensor, positives: Tensor) -> Tensor:
    """Cosine of every anchor with every positive, (n, d) x (m, d) -> (n, m), in float32 at least.

    Rounding a cosine to bfloat16 would change it by up to 0.04 after division by a temperature of 0.05.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        kind = torch.promote_types(anchors.dtype, torch.float32)
        similarity: Tensor = cos_sim(anchors.to(kind), positives.to(kind))
    return similarity


def contrastive_loss(
    model: SentenceTransformer, tau: float, mini_batch: int | None = None, *, gather: bool = False
) -> nn.Module:
    r"""The loss ``l_i = -log(exp(cos(h_i, h_i+) / tau) / sum_j exp(cos(h_i, h_j) / tau))``, its mean over a batch.

    The sum is over the positives and hard negatives of all rows of the batch.

    Args:
        model: The model that embeds the columns: anchor, positive, negatives.
        tau: The temperature.
        mini_batch: Rows encoded together, with cached gradients (GradCache): every text is encoded twice, in the memory
            of a mini-batch. None encodes the whole batch at once.
        gather: Whether the candidates of all processes serve as negatives.
    """
    options = {"scale": 1 / tau, "similarity_fct": cosine, "gather_across_devices": gather and process_count() > 1}
    if mini_batch is None:
        loss: nn.Module = MultipleNegativesRankingLoss(model, **options)
    else:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=mini_batch, **options)
    return loss


class DistillationLoss(nn.Module):
    """``mean(1 - cos(s_i, t_i)) - mean(log softmax_i(cos(s_i, t_j) / tau))`` of a batch's vectors and the teacher's.

    Not in LUSIFER's paper: the teacher is the language model alone, fine-tuned on the same English text. ``tau`` is the
    temperature of the contrast with the other texts' vectors.
    """

    def __init__(self, model: SentenceTransformer, tau: float) -> None:
        super().__init__()
        self.model = model
        self.tau = tau

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor) -> Tensor:
        """The loss for texts and the teacher's vectors of them (n, d_t)."""
        (features,) = sentence_features
        student = normalize(self.model(dict(features))["sentence_embedding"].float(), dim=1)
        cosines = student @ normalize(labels.float(), dim=1).T
        targets = torch.arange(len(cosines), device=cosines.device)
        loss: Tensor = (1 - cosines.diagonal()).mean() + cross_entropy(cosines / self.tau, targets)
        return loss
