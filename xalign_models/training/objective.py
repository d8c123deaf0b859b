"""The interface of a training method, contrastive and distillation losses, and retrieval among held-out pairs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import batch_to_device, cos_sim
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from xalign_models.errors import DataError
from xalign_models.generation.journal import batched
from xalign_models.training.processes import gathered, process_count


class TrainingOutcome(NamedTuple):
    """The outcome of a training, for the model's card and the last line of output."""

    learnt: bool
    """Whether the model improved on held-out text."""
    text: str
    """A sentence with the numbers."""

    @classmethod
    def of(cls, learnt: bool, text: str) -> Self:
        """The outcome; completes the sentence."""
        return cls(learnt, f"{text}." if learnt else f"{text}: nothing was learnt.")


class Instruments:
    """Measurements during training, and state besides the weights; every method is optional.

    Attributes:
        every: Optimisation steps between measurements, in addition to those before the first step and after each
            epoch; None for only these.
    """

    every: int | None = None

    def step(self) -> dict[str, Any]:
        """Measurements of an optimisation step, for the log; the trainer calls it after each step."""
        return {}

    def measure(self) -> dict[str, Any]:
        """Measurements on held-out text, for a separate log entry; empty without held-out text."""
        return {}

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Whether the model learnt anything, judged by the first and last measurements; None if they cannot tell."""
        return None

    def state(self) -> dict[str, Any]:
        """All mutable state besides the weights, as tensors and plain data, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""


MEASURE = "measure"
"""The feature that asks an objective for its measurements instead of a loss."""


class Objective(Module, Instruments):
    """A module that collates rows into a batch and computes the loss, ``features["loss"]``, in one forward pass."""

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
        return {"features": self.objective.collate(rows), "rows": len(rows)}


def cosine(anchors: Tensor, positives: Tensor) -> Tensor:
    """Cosine of every anchor with every positive, (n, d) x (m, d) -> (n, m), at least float32."""
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
        mini_batch: Rows encoded together, with cached gradients (GradCache): every text is encoded twice, with memory
            for one mini-batch. None encodes the whole batch at once.
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
    temperature of the contrast with the other texts' vectors, those of all processes.
    """

    def __init__(self, model: SentenceTransformer, tau: float) -> None:
        super().__init__()
        self.model = model
        self.tau = tau

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor) -> Tensor:
        """The loss for texts and the teacher's vectors (n, d_t) of these texts."""
        (features,) = sentence_features
        student = normalize(gathered(self.model(dict(features))["sentence_embedding"].float()), dim=1)
        cosines = student @ normalize(gathered(labels.float()), dim=1).T
        targets = torch.arange(len(cosines), device=cosines.device)
        return (1 - cosines.diagonal()).mean() + cross_entropy(cosines / self.tau, targets)


MEASURED = 128
"""Maximum number of held-out rows."""
CHANCE = 0.025
"""A model has learnt if guessing would get as many held-out queries right with less than this probability."""


def set_aside(rows: Sequence[tuple[Any, ...]], share: float, most: int = MEASURED) -> tuple[list[int], list[int]]:
    """Row numbers to train on and at most ``most`` row numbers to hold out, evenly spread.

    The first two items of each row are texts; no held-out text is trained on.

    Raises:
        DataError: No row is left to train on.
    """
    count = min(most, int(share * len(rows)))
    held_out = [i * len(rows) // count for i in range(count)]
    held_out_texts = {text for i in held_out for text in rows[i][:2]}
    train = [i for i, row in enumerate(rows) if not held_out_texts & {*row}]
    if not train:
        raise DataError(f"held_out {share}: every row shares a text with a held-out one; lower it or add other rows.")
    return train, held_out


class Retrieval(Instruments):
    """Share of held-out queries whose nearest held-out passage is their own.

    Args:
        model: The model in training.
        pairs: (query, passage), with their instructions; queries may share a passage.
        tau: Temperature of the loss.
        every: Optimisation steps between measurements.
        prompt: Prefix of every text.
        batch_size: Texts per batch.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        pairs: Sequence[tuple[Any, Any]],
        tau: float,
        every: int | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
    ) -> None:
        self.model, self.tau, self.every, self.prompt, self.batch_size = model, tau, every, prompt, batch_size
        self.queries = [query for query, _ in pairs]
        self.passages = list({str(passage): passage for _, passage in pairs}.values())
        places = {str(passage): place for place, passage in enumerate(self.passages)}
        self.right = torch.tensor([places[str(passage)] for _, passage in pairs])

    def measure(self) -> dict[str, Any]:
        """Accuracy and loss, both also by chance, and the mean cosine between different passages."""
        count = len(self.passages)
        if count < 2:
            return {}
        queries, passages = (torch.cat(list(self._encode(side))) for side in (self.queries, self.passages))
        scores = queries @ passages.T
        right = scores.argmax(dim=1) == self.right
        alike = passages @ passages.T
        return {
            "accuracy": float(right.float().mean()),
            "chance": 1 / count,
            "held_out_loss": float(cross_entropy(scores / self.tau, self.right)),
            "chance_loss": math.log(count),
            "mean_cosine": float((alike.sum() - alike.trace()) / (count * (count - 1))),
        }

    def _encode(self, texts: Sequence[Any]) -> Iterator[Tensor]:
        self.model.eval()
        for batch in batched(texts, self.batch_size):
            features = batch_to_device(self.model.preprocess(list(batch), prompt=self.prompt), self.model.device)
            yield normalize(self.model(features)["sentence_embedding"].float(), dim=1).cpu()

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Compare the accuracy with chance and with the accuracy before training; it must exceed both."""
        from scipy.special import bdtrc

        before, after, chance = first["accuracy"], last["accuracy"], last["chance"]
        text = (
            f"Held-out queries that find their passage among {len(self.passages)}: {after:.1%} ({before:.1%} before, "
            f"chance {chance:.1%}); loss {last['held_out_loss']:.2f} (chance {last['chance_loss']:.2f})"
        )
        better = after > before or (after == before and last["held_out_loss"] < first["held_out_loss"])
        count = len(self.queries)
        learnt = better and bdtrc(round(after * count) - 1, count, chance) < CHANCE
        return TrainingOutcome.of(bool(learnt), text)
