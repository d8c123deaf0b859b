"""What is trained, and on what: LoRA matrices on every linear layer, and the loss of eq. 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim

from xalign_models.contrastive.config import ContrastiveConfig
from xalign_models.errors import ModelError


def add_lora(model: SentenceTransformer, config: ContrastiveConfig) -> None:
    """Freeze the model and put trainable LoRA matrices on every linear layer of its transformer, in place.

    The second matrix of each starts at zero: the vectors are those of the untrained model. The matrices are float32,
    whatever the model is.

    Raises:
        ModelError: The backbone has no transformer that peft can adapt.
    """
    from peft import LoraConfig, TaskType

    if not model.has_peft_compatible_model():
        raise ModelError("--backbone: only transformers can be trained; this one is none.")
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model.add_adapter(
            LoraConfig(
                r=config.rank,
                lora_alpha=config.alpha,
                lora_dropout=config.dropout,
                target_modules="all-linear",
                task_type=TaskType.FEATURE_EXTRACTION,
            )
        )
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def cosine(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Cosine of every anchor with every positive, (n, d) x (m, d) -> (n, m), in float32 at least.

    Divided by a temperature of 0.05, a cosine that is rounded to bfloat16 would be off by 0.04.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        kind = torch.promote_types(anchors.dtype, torch.float32)
        similarity: torch.Tensor = cos_sim(anchors.to(kind), positives.to(kind))
    return similarity


def contrastive_loss(model: SentenceTransformer, config: ContrastiveConfig) -> torch.nn.Module:
    r"""Eq. 1: ``l_i = -log(exp(cos(h_i, h_i+) / tau) / sum_j exp(cos(h_i, h_j+) / tau))``, the mean over a batch.

    One direction a pair: anchors meet positives only. The other direction is a pair of its own.
    """
    kind, options = MultipleNegativesRankingLoss, {}
    if config.cached:
        kind, options = CachedMultipleNegativesRankingLoss, {"mini_batch_size": config.batch_size}
    loss: torch.nn.Module = kind(model, scale=1 / config.tau, similarity_fct=cosine, **options)
    return loss


@contextmanager
def own_randomness() -> Iterator[None]:
    """Whatever is seeded and drawn inside, the generators of Python, numpy and torch are as before afterwards."""
    import random

    import numpy as np

    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
