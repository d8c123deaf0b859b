"""Monitoring of a contrastive training: retrieval among held-out pairs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from xalign_models.generation.journal import batched
from xalign_models.training.objective import Instruments, TrainingOutcome

MEASURED = 128
"""Maximum number of held-out rows."""


def set_aside(rows: Sequence[tuple[Any, ...]], share: float, most: int = MEASURED) -> tuple[list[int], list[int]]:
    """Row numbers to train on and at most ``most`` row numbers to hold out, evenly spread.

    The first two items of each row are texts; no held-out text is trained on.
    """
    count = min(most, int(share * len(rows)))
    held_out = [i * len(rows) // count for i in range(count)]
    held_out_texts = {text for i in held_out for text in rows[i][:2]}
    return [i for i, row in enumerate(rows) if not held_out_texts & {*row}], held_out


class Retrieval(Instruments):
    """Share of held-out queries whose nearest held-out passage is their own.

    Args:
        model: The model in training.
        pairs: (query, passage), with their instructions; the last pair of each passage counts.
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
        self.pairs = list({str(passage): (query, passage) for query, passage in pairs}.values())

    def measure(self) -> dict[str, Any]:
        """Accuracy and loss, both also by chance, and the mean cosine between different passages."""
        count = len(self.pairs)
        if count < 2:
            return {}
        queries, passages = (torch.cat(list(self._encode(side))) for side in zip(*self.pairs, strict=True))
        scores = queries @ passages.T
        right = scores.argmax(dim=1) == torch.arange(count)
        alike = passages @ passages.T
        return {
            "accuracy": float(right.float().mean()),
            "chance": 1 / count,
            "held_out_loss": float(cross_entropy(scores / self.tau, torch.arange(count))),
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
        before, after, chance = first["accuracy"], last["accuracy"], last["chance"]
        text = (
            f"Held-out queries that find their passage among {len(self.pairs)}: {after:.1%} ({before:.1%} before, "
            f"chance {chance:.1%}); loss {last['held_out_loss']:.2f} (chance {last['chance_loss']:.2f})"
        )
        deviation = math.sqrt(chance * (1 - chance) / len(self.pairs))
        better = after > before or (after == before and last["held_out_loss"] < first["held_out_loss"])
        learnt = better and after > chance + 2 * deviation
        return TrainingOutcome.of(learnt, text)
