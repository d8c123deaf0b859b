"""The adaptor, which maps both token streams into one space, and the anchor loss in that space (eqs. 4 and 5)."""

from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, rms_norm

from xalign_models.training.lira.ranks import exact


class AlignedStreams(StrEnum):
    """Streams that the adaptor is applied to."""

    ONE_SIDED = "one_sided"
    """The multilingual stream, into the space of the frozen English stream (the paper's appendix D.1)."""
    SHARED = "shared"
    """Both streams (the paper's eq. 4); the loss is minimal when they collapse to one point."""


class Sentence(StrEnum):
    """Pooling of a stream's bins to one vector."""

    FLATTEN = "flatten"
    """Concatenation, which keeps the order of the bins (the paper's appendix D.1)."""
    MEAN = "mean"
    """The mean of the bins (the paper's eq. 4)."""


class Adaptor(nn.Module):
    """Linear, GELU, Linear on each bin; in shared mode after a projection to the English stream's width.

    The cosine ignores vector lengths: without a constraint, the trained side's vectors would grow, and so would their
    distance to the other side. In one-sided mode, the outputs therefore get the length ``gain``, once it is set.

    Args:
        multilingual: Width of the multilingual stream.
        english: Width of the English stream and of the common space.
        sides: Streams that are adapted.
        sentence: Pooling of bins to a vector.
    """

    def __init__(self, multilingual: int, english: int, sides: AlignedStreams, sentence: Sentence) -> None:
        super().__init__()
        self.sides, self.sentence = sides, sentence
        shared = self.sides is AlignedStreams.SHARED
        self.project: nn.Module = nn.Linear(multilingual, english) if shared else nn.Identity()
        if shared and multilingual == english:
            self.project = nn.Identity()
        self.net = nn.Sequential(
            nn.Linear(english if shared else multilingual, english), nn.GELU(), nn.Linear(english, english)
        )
        self.gain: Tensor
        self.register_buffer("gain", torch.zeros(()))

    def multilingual(self, bins: Tensor) -> Tensor:
        """(b, S, d_g) -> (b, S, d_h)."""
        result: Tensor = self.net(self.project(bins))
        return rms_norm(result, result.shape[-1:], eps=1e-6) * self.gain if self.gain else result

    def english(self, bins: Tensor) -> Tensor:
        """(b, S, d_h) -> (b, S, d_h); unchanged unless the adaptor is shared."""
        return self.net(bins) if self.sides is AlignedStreams.SHARED else bins

    def pool(self, bins: Tensor) -> Tensor:
        """Eq. 4: (..., S, d_h) -> (..., d_h), or (..., S d_h) if flattened."""
        return bins.flatten(-2) if self.sentence is Sentence.FLATTEN else bins.mean(dim=-2)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosine along the last axis, at least float32; 0, with finite gradients, for zero vectors."""
    return cosine_similarity(exact(a), exact(b), dim=-1, eps=1e-6)


def anchor_loss(multilingual: Tensor, english: Tensor) -> Tensor:
    """Eq. 5: the mean of ``1 - cos`` over the rows of two (n, d); 0 for no rows."""
    losses = 1 - cosines(multilingual, english)
    return losses.sum() / max(1, len(losses))


COLLAPSED = 0.9
"""Mean mismatched cosine above which the streams count as collapsed."""


class CollapseMonitor:
    """Detects collapse: the cosine of texts with the translations of *other* texts must stay low."""

    def __init__(self) -> None:
        self._matched = self._mismatched = 0.0
        self._pairs = self._others = 0

    @torch.no_grad()
    def update(self, multilingual: Tensor, english: Tensor) -> None:
        """Add the vectors (n, d) of texts and the vectors (n, d) of their translations."""
        table = cosines(multilingual[:, None], english[None])
        matched = float(table.diagonal().sum())
        self._matched += matched
        self._mismatched += float(table.sum()) - matched
        self._pairs += len(table)
        self._others += len(table) * (len(table) - 1)

    @property
    def matched(self) -> float:
        """Mean cosine of a text with its own translation."""
        return self._matched / self._pairs if self._pairs else float("nan")

    @property
    def mismatched(self) -> float:
        """Mean cosine of a text with another text's translation; NaN if every batch had a single text."""
        return self._mismatched / self._others if self._others else float("nan")

    @property
    def collapsed(self) -> bool:
        """Whether texts of different meaning have become alike."""
        return self.mismatched > COLLAPSED
