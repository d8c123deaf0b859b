"""The contrastive loss, plain or with cached gradients."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim

from xalign_models.training.processes import process_count


def cosine(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Cosine of every anchor with every positive, (n, d) x (m, d) -> (n, m), in float32 at least.

    Divided by a temperature of 0.05, a cosine that is rounded to bfloat16 would be off by 0.04.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        kind = torch.promote_types(anchors.dtype, torch.float32)
        similarity: torch.Tensor = cos_sim(anchors.to(kind), positives.to(kind))
    return similarity


def contrastive_loss(
    model: SentenceTransformer, tau: float, mini_batch: int | None = None, *, gather: bool = False
) -> torch.nn.Module:
    r"""The loss ``l_i = -log(exp(cos(h_i, h_i+) / tau) / sum_j exp(cos(h_i, h_j) / tau))``, its mean over a batch.

    The sum is over the positives and hard negatives of all rows of the batch.

    Args:
        model: The model that embeds the columns: anchor, positive, negatives.
        tau: The temperature.
        mini_batch: Rows encoded together, with cached gradients (GradCache): every text is encoded twice, with the
            memory of a mini-batch. None encodes the batch at once.
        gather: Take the candidates of all processes as negatives.
    """
    options = {"scale": 1 / tau, "similarity_fct": cosine, "gather_across_devices": gather and process_count() > 1}
    if mini_batch is None:
        loss: torch.nn.Module = MultipleNegativesRankingLoss(model, **options)
    else:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=mini_batch, **options)
    return loss
