"""What is trained: LoRA matrices on every linear layer, by the loss of eq. 1."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer

from xalign_models.backbones import adapters
from xalign_models.errors import ModelError
from xalign_models.training import losses
from xalign_models.training.contrastive.config import ContrastiveConfig


def add_lora(model: SentenceTransformer, config: ContrastiveConfig) -> None:
    """Freeze the model and put trainable LoRA matrices on every linear layer of its transformer, in place.

    Raises:
        ModelError: The backbone has no transformer that peft can adapt.
    """
    if not model.has_peft_compatible_model():
        raise ModelError("--backbone: only transformers can be trained; this one is none.")
    model.requires_grad_(False)
    adapters.add_lora(
        model.transformers_model, rank=config.rank, alpha=config.alpha, dropout=config.dropout, seed=config.seed
    )


def contrastive_loss(model: SentenceTransformer, config: ContrastiveConfig) -> torch.nn.Module:
    r"""Eq. 1: ``l_i = -log(exp(cos(h_i, h_i+) / tau) / sum_j exp(cos(h_i, h_j+) / tau))``, the mean over a batch.

    Only anchors are scored against positives; the other direction is a pair of its own.
    """
    mini_batch = config.batch_size if config.cached else None
    return losses.contrastive_loss(model, config.tau, mini_batch, gather=config.cached)
