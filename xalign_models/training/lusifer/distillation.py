"""Distillation: a text's vector through the soft tokens learns the language model's own vector of the text.

Not in the paper: the teacher is the language model alone, fine-tuned, on the same English text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize


class DistillationLoss(nn.Module):
    """``mean(1 - cos(s_i, t_i)) - mean(log softmax_i(cos(s_i, t_j) / tau))`` of a batch's vectors and the teacher's.

    Args:
        model: The student.
        tau: Temperature of the contrast with the other texts' vectors.
    """

    def __init__(self, model: SentenceTransformer, tau: float) -> None:
        super().__init__()
        self.model = model
        self.tau = tau

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor) -> Tensor:
        """The loss of texts and the teacher's vectors of them (n, d_t)."""
        (features,) = sentence_features
        student = normalize(self.model(dict(features))["sentence_embedding"].float(), dim=1)
        cosines = student @ normalize(labels.float(), dim=1).T
        targets = torch.arange(len(cosines), device=cosines.device)
        loss: Tensor = (1 - cosines.diagonal()).mean() + cross_entropy(cosines / self.tau, targets)
        return loss
