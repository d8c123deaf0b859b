"""A method that is not affine, in one file: a small network behind the encoder.

It learns from translations to move every language's vectors to those of the English translations, and to leave English
where it is. Try it in this file's folder:

    xalign fit mlp --plugin mlp_head.py --backbone multilingual-e5-small-q4 --corpus gettext:fit -o with-head
    xalign run --plugin mlp_head.py -m with-head

There are two classes. ``MLP`` fits: its ``factors`` are the weights, and ``apply`` is the map in numpy. ``MLPHead`` is
the map in torch, which becomes part of the saved model. It is registered too, because a saved model may only name
registered code. The weights are saved as safetensors, so a saved model runs wherever this file is plugged in:

    export XALIGN_PLUGINS=/path/to/mlp_head.py
    python -c "import xalign_models; print(xalign_models.load('with-head').encode(['Good morning']))"
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from xalign_models import register
from xalign_models.alignments.base import Alignment, Array, as_matrix, common_dim
from xalign_models.alignments.module import Aligned
from xalign_models.errors import AlignmentError


@register.module
class MLPHead(Aligned):
    """``y = x + relu(x A + b) B``: the map of :class:`MLP` as a module of a SentenceTransformer."""

    tensors = ("inner", "bias", "outer")

    def map_rows(self, x: torch.Tensor, index: int) -> torch.Tensor:
        """Map rows (n, d); ``index`` is always 0, since one network serves all languages."""
        inner, bias, outer = (getattr(self, name)[index].to(x.dtype) for name in self.tensors)
        return x + torch.relu(x @ inner + bias) @ outer


@register.alignment
@dataclass(eq=False)
class MLP(Alignment):
    """``y = x + relu(x A + b) B``, with A (d, h), b (h,) and B (h, d) of least mean squared distance to English.

    Attributes:
        inner_: A.
        bias_: b.
        outer_: B.
    """

    method = "mlp"
    arrays = ("inner_", "bias_", "outer_")
    parallel = True  # the fit text must be translations
    language_dependent = False  # texts need no language

    hidden: int = 64
    """Width h of the hidden layer."""
    steps: int = 200
    """Steps of Adam, each on all rows."""
    lr: float = 1e-3
    """Learning rate."""
    seed: int = 0
    """Seed of the initial weights."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if min(self.hidden, self.steps) < 1 or not self.lr > 0:
            raise AlignmentError(f"hidden={self.hidden}, steps={self.steps}, lr={self.lr}; all must be above 0.")

    def fit(self, data: Mapping[str, Any]) -> Self:
        """Fit on translations.

        Args:
            data: For each language, its embeddings (n, d) and those of the English translations (n, d).

        Raises:
            AlignmentError: There are no rows, or they do not match their translations.
        """
        texts = {language: as_matrix(pair[0], language) for language, pair in data.items()}
        english = {language: as_matrix(pair[1], f"{language}'s English") for language, pair in data.items()}
        if unequal := [language for language in data if len(texts[language]) != len(english[language])]:
            raise AlignmentError(f"mlp: rows of {', '.join(unequal)} are not aligned with English; pass translations.")
        dim = common_dim(texts)
        x, y = (np.concatenate(list(side.values())) for side in (texts, english))
        source, target = (torch.from_numpy(np.concatenate(rows)).double() for rows in ((x, y), (y, y)))
        random = torch.Generator().manual_seed(self.seed)
        inner = torch.randn(dim, self.hidden, generator=random, dtype=torch.float64) / dim**0.5
        bias, outer = torch.zeros(self.hidden, dtype=torch.float64), torch.zeros(self.hidden, dim, dtype=torch.float64)
        weights = [weight.requires_grad_() for weight in (inner, bias, outer)]
        optimiser = torch.optim.Adam(weights, lr=self.lr)
        with torch.enable_grad():
            for _ in range(self.steps):
                optimiser.zero_grad()
                moved = source + torch.relu(source @ inner + bias) @ outer
                (moved - target).square().sum(dim=1).mean().backward()
                optimiser.step()
        self.inner_, self.bias_, self.outer_ = (weight.detach().numpy() for weight in weights)
        self.languages_, self.dim_ = tuple(data), dim
        return self

    def factors(self) -> dict[str, Array]:
        """The weights of the one network, under the names that :meth:`apply` and the module use."""
        return {"inner": self.inner_[None], "bias": self.bias_[None], "outer": self.outer_[None]}

    @staticmethod
    def apply(x: Array, inner: Array, bias: Array, outer: Array) -> Array:  # type: ignore[override]
        """Map rows (n, d)."""
        return x + np.maximum(x @ inner + bias, 0) @ outer

    def module(self) -> MLPHead:
        """The network as a torch module."""
        return MLPHead.of(self)
