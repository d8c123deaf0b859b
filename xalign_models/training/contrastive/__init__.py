"""Few-shot contrastive alignment: LoRA weights that draw a few translations together."""

from __future__ import annotations

from xalign_models.training.contrastive.config import ContrastiveConfig

__all__ = ["ContrastiveConfig"]
