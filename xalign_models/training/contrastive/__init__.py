"""Few-shot contrastive alignment: LoRA matrices trained on a few translations."""

from xalign_models.training.contrastive.config import ContrastiveConfig

__all__ = ["ContrastiveConfig"]
