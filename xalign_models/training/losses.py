"""The contrastive loss, plain or with cached gradients, and the loss of distillation."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from xalign_models.training.processes import process_count


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
