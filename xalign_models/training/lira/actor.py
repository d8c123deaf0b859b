"""The actor, which chooses a translation, and its reward (eqs. 6 to 8)."""

import torch
from torch import Tensor, nn

from xalign_models.configuration import NonNegative, configuration_class
from xalign_models.training.lira.ranks import exact

SCALE = 0.1
"""Scales critic scores (1 to 10) to the range of a cosine."""


@configuration_class
class RewardWeights:
    """The weights alpha, beta, gamma and delta of eq. 7, from the paper's table 10.

    Attributes:
        semantic: Weight of the critic's semantic fidelity.
        emotional: Weight of the critic's emotional consistency.
        pragmatic: Weight of the critic's pragmatic tone.
        similarity: Weight of the embedding critic, the cosine of the two paths.
    """

    semantic: NonNegative = 0.4
    emotional: NonNegative = 0.3
    pragmatic: NonNegative = 0.3
    similarity: NonNegative = 1.0


class Actor(nn.Module):
    """Scores each candidate with the same network; candidates can have any number and order.

    The layers are 4 -> 64 -> 64 -> 1, with LayerNorm and ReLU between them; the paper states only ReLU and LayerNorm.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Log probabilities (b, K) of candidates (b, K, 4), over the candidates that ``mask`` (b, K) keeps.

        A row with all candidates masked gets equal probabilities; a loss must skip it.
        """
        logits = exact(self.net(features)[..., 0])
        lowest = torch.finfo(logits.dtype).min
        return torch.log_softmax(logits.masked_fill(~mask & mask.any(dim=-1, keepdim=True), lowest), dim=-1)


def features(scores: Tensor, similarity: Tensor) -> Tensor:
    """Eq. 6: ``[s, e, p, sim]`` (b, K, 4) of scores (b, K, 3) and cosines (b, K), without a gradient."""
    return torch.cat([exact(scores) * SCALE, exact(similarity)[..., None]], dim=-1).detach()


def reward(scores: Tensor, similarity: Tensor, weights: RewardWeights) -> Tensor:
    """Eq. 7: ``0.1 (a s + b e + c p) + d sim`` (b, K), without a gradient."""
    chosen = exact(scores).new_tensor((weights.semantic, weights.emotional, weights.pragmatic))
    return (SCALE * (exact(scores) * chosen).sum(dim=-1) + weights.similarity * exact(similarity)).detach()


def sample(log_probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One candidate per row, (b,), drawn with its probability."""
    probabilities = log_probabilities.detach().exp().cpu()
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(log_probabilities.device)


def policy_loss(
    log_probabilities: Tensor, actions: Tensor, rewards: Tensor, mask: Tensor, *, baseline: bool = True
) -> Tensor:
    r"""Eq. 8: ``-log pi(a) (R_a - b)``, the mean over rows with a candidate; 0 if there are none.

    The baseline ``b = sum_k pi_k R_k`` keeps the expected gradient and removes most of its variance; it is not in the
    paper. A single candidate teaches nothing, as its log probability is constant. Log probabilities, rewards and mask
    are (b, K), the sampled actions (b,).
    """
    usable = mask.any(dim=-1)
    rewards = rewards.detach().masked_fill(~mask, 0)
    taken = rewards.gather(1, actions[:, None])[:, 0]
    if baseline:
        taken = taken - (log_probabilities.detach().exp() * mask * rewards).sum(dim=-1)
    losses = -log_probabilities.gather(1, actions[:, None])[:, 0] * taken
    return (losses * usable).sum() / usable.sum().clamp(min=1)
