"""LangSAE: remove the units of a sparse autoencoder that belong to a language (Kim et al., 2026)."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from xalign_models.alignments.base import UnpairedAlignment
from xalign_models.alignments.groups import places_by_prompt
from xalign_models.alignments.residual import Network
from xalign_models.configuration import AtLeastOne, Count, NonNegative
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.plugins import register


@register.alignment
@dataclass(eq=False)
class LangSAE(Network, UnpairedAlignment):  # type: ignore[misc]  # other factors
    """``y = x - (m z) D``, with z = relu(x E + e) the code of a sparse autoencoder, and m 1 for units of a language.

    A unit belongs to a language if, under one prompt, it is active in half of this language's rows but not in half of
    every language's. The paper (arXiv 2601.04768) and its code differ: z keeps only the largest units, so the map is
    discontinuous; the dictionary is larger; and y is decoded from the remaining units, without the autoencoder's error.

    Attributes:
        inner_: E of the units with m = 1, (1, d, h).
        bias_: Their e, (1, h).
        outer_: Their -D, (1, h, d).
    """

    method = "langsae"
    arrays = ("inner_", "bias_", "outer_")
    language_dependent = False
    joint = True
    version = 2

    units: AtLeastOne = 512
    """Size of the dictionary."""
    sparsity: NonNegative = 0.1
    """Weight of the L1 penalty of the code, for embeddings of unit variance."""
    active: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a language's rows in which a unit of the language is active."""
    steps: AtLeastOne = 1000
    """Steps of Adam, each on 256 rows; all languages are equally likely."""
    seed: Count = 0
    """Random seed of the first weights and the batches."""

    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        from xalign_models.alignments.networks import autoencoder

        rows = np.concatenate([x.astype(np.float64) for x in matrices.values()])
        shares = np.concatenate([np.full(len(x), 1 / len(x) / len(matrices)) for x in matrices.values()])
        encoder, bias, decoder = autoencoder(
            rows, shares, units=self.units, sparsity=self.sparsity, steps=self.steps, seed=self.seed
        )
        rates = np.stack([(x @ encoder + bias > 0).mean(axis=0) for x in matrices.values()])
        ranges = [(rates[places].max(axis=0), rates[places].min(axis=0)) for places in places_by_prompt(matrices)]
        chosen = np.any([(most >= self.active) & (least < self.active) for most, least in ranges], axis=0)
        if not chosen.any():
            warnings.warn("langsae: no unit belongs to a language, so embeddings do not change.", stacklevel=4)
        self.inner_, self.bias_ = encoder[None, :, chosen], bias[None, chosen]
        self.outer_ = -decoder[None, chosen]
