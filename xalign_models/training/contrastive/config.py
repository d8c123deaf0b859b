"""The hyperparameters of few-shot contrastive alignment, as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.limits import SEEDS, at_least, positive, within
from xalign_models.specs import Dtype
from xalign_models.training.schedulers import Scheduler

PAPER_LANGUAGES = ("arb-Arab", "spa-Latn")
"""Turkish is left out on purpose: it measures what a language gains that was not trained."""


@dataclass(frozen=True)
class ContrastiveConfig:
    """What a training is determined by, beside the backbone and the text; defaults are the paper's where it says.

    Attributes:
        pairs: Name for ``xalign_models.corpora.load``.
        samples: Rows per language, from the top; each gives a pair in both directions.
        languages: Canonical codes; each is paired with the pivot.
        pivot: The other side of every pair; another than English needs a parallel corpus.
        tau: Temperature of eq. 1; the paper does not say, SimCSE's is 0.05.
        rank: Of the LoRA matrices, which are put on every linear layer.
        alpha: LoRA's scale is alpha / rank.
        dropout: Of the LoRA matrices' input.
        batch_size: Pairs that are encoded together. Each pair's negatives are the others' second sides: 31 of 32.
        accumulation: Batches per optimisation step; they do not see each other's texts unless ``cached``.
        cached: Take all ``batch_size * accumulation`` pairs of a step as one batch, with that many negatives
            (sentence-transformers' cached loss, which encodes twice to keep the memory of ``batch_size`` pairs).
        learning_rate: At its height.
        epochs: None is 10 for at most 100 samples and 3 for more.
        max_steps: Optimisation steps, instead of epochs; 0 trains nothing.
        scheduler: Of the learning rate; the paper does not say, linear is the trainer's default.
        warmup: Steps of warm-up, or a share of all steps below 1; the paper does not say.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients are clipped at it: the trainer's default.
        seed: Of the LoRA matrices, the order of the pairs and the dropout.
        dtype: Of the backbone's weights and activations while training; None is the backbone's own. The LoRA matrices
            are always float32.
    """

    pairs: str = "ntrex"
    samples: int = 1000
    languages: tuple[str, ...] = PAPER_LANGUAGES
    pivot: str = ENGLISH
    tau: float = 0.05
    rank: int = 64
    alpha: int = 16
    dropout: float = 0.05
    batch_size: int = 32
    accumulation: int = 4
    cached: bool = False
    learning_rate: float = 5e-4
    epochs: int | None = None
    max_steps: int | None = None
    scheduler: Scheduler = Scheduler.LINEAR
    warmup: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    seed: int = 0
    dtype: Dtype | None = None

    def __post_init__(self) -> None:
        """Check the fields that have limits.

        Raises:
            ModelError: A value out of its range; the message names the CLI's flag, if there is one.
        """
        object.__setattr__(self, "dtype", self.dtype and Dtype(self.dtype))
        object.__setattr__(self, "languages", tuple(dict.fromkeys(self.languages)))
        at_least(self, called=_flag, samples=1, rank=1, accumulation=1, epochs=1, max_steps=0)
        at_least(self, alpha=1, warmup=0, weight_decay=0)
        within(self, called=_flag, seed=(0, SEEDS))
        within(self, dropout=(0, 1))
        positive(self, "tau", "learning_rate", called=_flag)
        positive(self, "max_grad_norm")
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


def _flag(field: str) -> str:
    return "--lr" if field == "learning_rate" else f"--{field.replace('_', '-')}"
