r"""Maps the encoder's states to inputs of the language model, in place of token embeddings.

``C(X) = ReLU(X W_1 + b_1) W_2 + b_2``, followed by one trainable token t: ``d_e^2 + d_e + d_e d_t + 2 d_t`` parameters.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence


class Connector(nn.Module):
    """The two layers and the token.

    Args:
        width: Width d_e of the encoder.
        target: Width d_t of the language model.
        std: Standard deviation of the token's initial values, equal to that of the language model's embeddings.
        tokens: Number of trainable tokens, 1 or 0. The paper uses one, the released model none.
    """

    token: nn.Parameter

    def __init__(self, width: int, target: int, std: float = 0.02, tokens: int = 1) -> None:
        super().__init__()
        self.tokens = tokens
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, target)
        self.register_parameter("token", nn.Parameter(torch.empty(target).normal_(std=std)) if tokens else None)

    def forward(self, states: Tensor) -> Tensor:
        """(..., d_e) -> (..., d_t), in the precision of the connector's weights, or autocast's."""
        mapped: Tensor = self.outer(torch.relu(self.inner(states.to(self.inner.weight.dtype))))
        return mapped


def join(pieces: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Concatenate ragged rows without gaps, and pad at the end.

    Args:
        pieces: (values, mask) each: the mask (b, s) marks the real positions of each row, anywhere in the row; values
            (mask.sum(), d) has the values at real positions, row by row.

    Returns:
        (b, w, d) and its mask (b, w), bool, w being the longest row's length.
    """
    dtype = pieces[0][0].dtype
    parts = [torch.split(values.to(dtype), mask.bool().sum(dim=1).tolist()) for values, mask in pieces]
    rows = [torch.cat(row) for row in zip(*parts, strict=True)]
    joined = pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows], device=joined.device)
    return joined, torch.arange(joined.shape[1], device=joined.device)[None] < lengths[:, None]
