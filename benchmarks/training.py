"""A training step without its optimizer, as the training benchmarks time it."""

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.shapes import mixed_texts

Batch = list[dict[str, Any]]


class Step:
    """Forward, loss and backward of a model; calling it returns the loss.

    Gradients are set to zero before each step. The forward pass is in mixed precision where the type is bfloat16.
    """

    def __init__(self, model: nn.Module, loss: Callable[[], torch.Tensor], dtype: torch.dtype = torch.float32) -> None:
        self.model, self.loss = model.train(), loss
        device = next(model.parameters()).device.type
        self.autocast = torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16)

    def __call__(self) -> float:
        self.model.zero_grad()
        with self.autocast:
            loss = self.loss()
        loss.backward()
        return float(loss.detach())

    def gradient(self) -> torch.Tensor:
        """All gradients of the last step in one vector, on the CPU in float32."""
        gradients = [weight.grad.flatten() for weight in self.model.parameters() if weight.grad is not None]
        return torch.cat(gradients).float().cpu()


def remove_dropout(model: nn.Module) -> None:
    """Set dropout to 0, so that both sides of a comparison compute the same."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def pairs_of_texts(model: SentenceTransformer, pairs: int, device: str) -> Batch:
    """The features of both sides of a batch of pairs, on the device."""
    texts = mixed_texts(2 * pairs)
    return [
        {name: value.to(device) if torch.is_tensor(value) else value for name, value in model.preprocess(side).items()}
        for side in (texts[::2], texts[1::2])
    ]


def lengths_of(batch: Batch) -> list[int]:
    """Tokens of each text of a batch."""
    return [int(length) for side in batch for length in side["attention_mask"].sum(dim=1)]
