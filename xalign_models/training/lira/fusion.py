"""LaSR's fusion: two token streams side by side through a transformer, pooled to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Fusion(nn.Module):
    """A projection into a transformer's inputs and a type vector per stream; the caller passes the transformer.

    The streams are concatenated, so that the transformer attends across them. The output is the last position of a
    causal transformer, which has seen everything, and the mean of any other. If the widths are equal, the projection
    starts as the identity, scaled to the transformer's input embeddings: the untrained fusion reads streams like words.

    Args:
        width: Width of the streams.
        inner: Width of the transformer's input embeddings.
        causal: Whether the transformer's attention is causal.
        scale: Mean norm of the transformer's input embeddings.
    """

    def __init__(self, width: int, inner: int, *, causal: bool, scale: float) -> None:
        super().__init__()
        self.causal = causal
        self.projection = nn.Linear(width, inner)
        self.kind = nn.Embedding(2, inner)
        nn.init.zeros_(self.projection.bias)
        nn.init.normal_(self.kind.weight, std=0.02 * scale / inner**0.5)
        if width == inner:
            with torch.no_grad():
                self.projection.weight.copy_(torch.eye(width) * scale)
        else:
            nn.init.normal_(self.projection.weight, std=scale / inner**0.5)

    def forward(self, transformer: Any, streams: Sequence[tuple[int, Tensor]]) -> Tensor:
        """(n, d_m) of streams (n, S, width), each with its number: 0 multilingual, 1 English."""
        inputs = torch.cat([self.projection(stream) + self.kind.weight[number] for number, stream in streams], dim=1)
        states: Tensor = transformer(
            inputs_embeds=inputs.to(transformer.dtype),
            attention_mask=torch.ones(inputs.shape[:2], dtype=torch.long, device=inputs.device),
        ).last_hidden_state
        return states[:, -1] if self.causal else states.mean(dim=1)
