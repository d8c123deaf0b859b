"""Few-shot contrastive alignment: LoRA matrices trained on a few translations."""
