"""The hyperparameters of few-shot contrastive alignment, as in the paper."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator

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
from xalign_models.specs import Dtype
from xalign_models.training.schedulers import Scheduler

PAPER_LANGUAGES = ("arb-Arab", "spa-Latn")
"""Turkish is left out on purpose: it measures what a language gains that was not trained."""


@configuration_class
class ContrastiveConfig:
    """Hyperparameters of a training; the defaults are the paper's where it gives them.

    Attributes:
        pairs: Name for ``xalign_models.corpora.load``.
        samples: Rows per language, from the top; each gives a pair in both directions.
        languages: Canonical codes; each is paired with the pivot.
        pivot: The other side of every pair; a language other than English needs a parallel corpus.
        tau: Temperature of eq. 1; the paper does not say, SimCSE's is 0.05.
        rank: Rank of the LoRA matrices on every linear layer.
        alpha: LoRA's scale is alpha / rank.
        dropout: Dropout on the input of the LoRA matrices.
        batch_size: Pairs that are encoded together. Each pair's negatives are the others' second sides: 31 of 32.
        accumulation: Batches per optimisation step; they do not see each other's texts unless ``cached``.
        cached: Take all ``batch_size * accumulation`` pairs of a step as one batch, with that many negatives
            (sentence-transformers' cached loss, which encodes twice to keep the memory of ``batch_size`` pairs).
        learning_rate: The peak learning rate.
        epochs: None is 10 for at most 100 samples and 3 for more.
        max_steps: Optimisation steps, instead of epochs; 0 trains nothing.
        scheduler: Learning-rate schedule; the paper does not say, linear is the trainer's default.
        warmup: Steps of warm-up, or a share of all steps below 1; the paper does not say.
        weight_decay: Weight decay of AdamW.
        max_grad_norm: Norm at which gradients are clipped; 1 is the trainer's default.
        seed: Seed of the LoRA matrices, the order of the pairs and the dropout.
        dtype: Type of the backbone's weights and activations in training; None is the backbone's own. The LoRA matrices
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
    batch_size: int = 32
    accumulation: AtLeastOne = 4
    cached: bool = False
    learning_rate: Positive = 5e-4
    epochs: AtLeastOne | None = None
    max_steps: Count | None = None
    scheduler: Scheduler = Scheduler.LINEAR
    warmup: NonNegative = 0.0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    seed: Seed = 0
    dtype: Dtype | None = None

    FLAGS: ClassVar[dict[str, str]] = {
        **{
            name: f"--{name.replace('_', '-')}"
            for name in (
                "pairs",
                "samples",
                "languages",
                "tau",
                "rank",
                "batch_size",
                "accumulation",
                "epochs",
                "max_steps",
                "seed",
                "dtype",
            )
        },
        "learning_rate": "--lr",
    }
    """The command-line option of each field."""

    def __post_init__(self) -> None:
        """Check what the types of the fields do not.

        Raises:
            ModelError: A batch without a negative, a type that overflows, or no language beside the pivot.
        """
        if self.batch_size < 2:
            raise ModelError(f"--batch-size {self.batch_size}: at least 2, for a pair to have a negative.")
        if self.dtype is Dtype.FLOAT16:
            raise ModelError("--dtype float16: a model trained in it overflows; use float32 or bfloat16.")
        if not self.languages or self.pivot in self.languages:
            raise ModelError(f"--languages: name at least one, and not {self.pivot}: every pair has it.")

    @property
    def label(self) -> str:
        """What the training adds to the model's name."""
        return f"contrastive-{self.samples}"

    @property
    def passes(self) -> int:
        """Epochs, by the paper's rule unless they are given."""
        return self.epochs or (10 if self.samples <= 100 else 3)
