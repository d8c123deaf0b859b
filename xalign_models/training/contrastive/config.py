"""The hyperparameters of few-shot contrastive alignment, as in the paper."""

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from xalign_models import configuration
from xalign_models.configuration import (
    AtLeastOne,
    Count,
    Names,
    NonNegative,
    Positive,
    Seed,
    Share,
    configuration_class,
)
from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.training.config import Scheduler, TrainingDtype

PAPER_LANGUAGES = ("arb-Arab", "spa-Latn")
"""Turkish is left out on purpose, to measure how much a language gains without training on it."""


@configuration_class
class ContrastiveConfig:
    """Hyperparameters of the training; the defaults are the paper's if it states them.

    Attributes:
        pairs: Parallel text: ntrex, flores, gettext, tatoeba_pairs or own:DIR.
        samples: Rows per language, from the top; each row gives one pair per direction.
        languages: Languages to pair with the pivot.
        pivot: The other side of every pair; a language other than English needs a parallel corpus.
        tau: Temperature of eq. 1; the paper does not state it, SimCSE's is 0.05.
        rank: Rank of the LoRA matrices on every linear layer.
        alpha: LoRA's scale is alpha / rank.
        dropout: Dropout on the input of the LoRA matrices.
        batch_size: Pairs encoded together. The negatives of a pair are the second sides of the others, 31 of 32.
        accumulation: Batches per optimisation step; they do not see each other's texts unless ``cached``.
        cached: Use all ``batch_size * accumulation`` pairs of a step as one batch, with that many negatives
            (sentence-transformers' cached loss, which encodes twice but needs memory for only ``batch_size`` pairs).
        learning_rate: The peak learning rate.
        epochs: Passes over the pairs; by default 10 for up to 100 samples, and 3 for more.
        max_steps: Optimisation steps, instead of epochs; 0 trains nothing.
        scheduler: Learning-rate schedule; the paper does not state it, linear is the trainer's default.
        warmup: Steps of warm-up, or a share of all steps if below 1; the paper does not state it.
        weight_decay: Weight decay of AdamW.
        max_grad_norm: Norm at which gradients are clipped; 1 is the trainer's default.
        seed: Seed of the LoRA matrices, the order of the pairs and the dropout.
        dtype: Type of the backbone's weights and activations in training; None means the backbone's own. LoRA matrices
            are always float32.
    """

    pairs: str = "ntrex"
    samples: AtLeastOne = 1000
    languages: Annotated[Names, AfterValidator(lambda codes: tuple(dict.fromkeys(codes)))] = PAPER_LANGUAGES
    pivot: str = ENGLISH
    tau: Positive = 0.05
    rank: AtLeastOne = 64
    alpha: AtLeastOne = 16
    dropout: Share = 0.05
    batch_size: Annotated[int, Field(ge=2)] = 32
    accumulation: AtLeastOne = 4
    cached: bool = False
    learning_rate: Positive = 5e-4
    epochs: AtLeastOne | None = None
    max_steps: Count | None = None
    scheduler: Scheduler = "linear"
    warmup: NonNegative = 0.0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    seed: Seed = 0
    dtype: TrainingDtype | None = None

    def __post_init__(self) -> None:
        if not self.languages or self.pivot in self.languages:
            raise ModelError(f"languages: name at least one besides {self.pivot}, which every pair already contains.")

    @property
    def passes(self) -> int:
        """Epochs: the given number, else by the paper's rule."""
        return self.epochs or (10 if self.samples <= 100 else 3)


load_config = partial(configuration.read, ContrastiveConfig, __package__)
"""Reads configurations by name or path, and changed fields, e.g. ``samples=100``."""
