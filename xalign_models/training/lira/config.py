"""What a LiRA is made of and how it is trained, as data; defaults are the paper's where it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from xalign_models import configuration
from xalign_models.errors import ModelError
from xalign_models.generation.critics import CriticSpec
from xalign_models.generation.translators import TranslatorSpec
from xalign_models.limits import at_least, positive
from xalign_models.specs import Dtype
from xalign_models.training.lira.actor import RewardWeights
from xalign_models.training.lira.adaptor import Sentence, Sides
from xalign_models.training.lira.correlation import CorrelationConfig
from xalign_models.training.lira.ndcg import RetrievalConfig


class Stream(StrEnum):
    """What of the English model's tokens is the English stream."""

    EMBEDDINGS = "embeddings"
    """Their input embeddings, without special tokens (the paper's appendix D.1)."""
    STATES = "states"
    """Their last hidden states, of the model as it was before any training (the paper's section 4.2)."""


class Paths(StrEnum):
    """Which streams the fusion reads."""

    BOTH = "both"
    MULTILINGUAL = "multilingual"
    ENGLISH = "english"


class Ablation(StrEnum):
    """A part that is left out, as in the paper's table 5."""

    CRITIC = "critic"
    """No language model judges translations."""
    EMBEDS = "embeds"
    """No embedding critic: neither the anchor loss nor the cosine in features and reward."""
    TRANSLATIONS = "translations"
    """The English path reads the text as it is."""
    MULTILINGUAL = "multilingual"
    """The fusion reads the English stream alone."""
    QUEUE = "queue"
    """Neither history: a batch has itself alone."""


@dataclass(frozen=True)
class Design:
    """The model.

    Attributes:
        multilingual: Backbone of the multilingual path: registered name, directory or hub id of an encoder.
        english: Backbone of the English path, which also fuses: an English (or any) embedding model or language model.
        dtype: Of the English path's frozen weights, if not its backbone's own; what is trained is float32.
        translators: Sources of candidates, ``kind:model``; of each kind the best first.
        slots: Candidates per text; None is one per translator.
        critic: ``generate:MODEL`` or ``expected_score:MODEL``; None is the embedding critic alone.
        embedding_critic: Whether the actor sees the cosine of the two paths.
        bins: S, the length that token streams are pooled to.
        sides: Which streams the adaptor is applied to; ``shared`` collapses.
        sentence: How a stream becomes one vector in Arca.
        stream: What the English stream is made of.
        centre: Subtract the mean English token, as it is in the training's translations, from the English stream:
            without it the anchor is met by that mean alone, and a text is as near to any translation as to its own.
        paths: Which streams the fusion reads.
    """

    multilingual: str = "multilingual-e5-small-q4"
    english: str = "smollm2-135m-q4"
    dtype: Dtype | None = None
    translators: tuple[str, ...] = ()
    slots: int | None = None
    critic: str | None = None
    embedding_critic: bool = True
    bins: int = 8
    sides: Sides = Sides.ONE_SIDED
    sentence: Sentence = Sentence.FLATTEN
    stream: Stream = Stream.EMBEDDINGS
    centre: bool = True
    paths: Paths = Paths.BOTH

    def __post_init__(self) -> None:
        """Check the fields that have limits.

        Raises:
            ModelError: A value out of its range, or a translator or critic that cannot be read.
        """
        for name in self.translators:
            TranslatorSpec.parse(name)
        if len(set(self.translators)) < len(self.translators):
            raise ModelError(f"translators: one is named twice in {', '.join(self.translators)}.")
        if self.critic is not None:
            CriticSpec.parse(self.critic)
        if self.bins < 1 or (self.slots is not None and self.slots < 1):
            raise ModelError(f"bins {self.bins}, slots {self.slots}: at least 1.")


@dataclass(frozen=True)
class ArcaConfig:
    """Stage 1: the multilingual path is anchored to the English one, and the actor learns to choose.

    Attributes:
        text: Parallel corpora whose texts are translated, e.g. ``ntrex``.
        extra: More sources of candidates, which there are for this text alone, such as ``reference:ntrex``. Stage 2
            does without them: a query that comes with its document as its translation would teach nothing.
        languages: Canonical codes; empty is all that a corpus has.
        samples: Rows per corpus and language, from the top.
        held_out: Share of the rows, from the end, on which each epoch is measured; never trained on.
        epochs: Passes.
        batch_size: Texts.
        eta: Weight of the anchor loss (eq. 9); the paper does not say.
        reward: Weights of eq. 7.
        baseline: Subtract the expected reward; the paper does not.
        actor_rate: Learning rate of the actor; like the two others lost in the paper's text.
        encoder_rate: Of the multilingual encoder; 0 freezes it.
        adaptor_rate: Of the adaptor.
        train_embeddings: Whether the encoder's token embeddings are trained with it.
        clip: Norm that each part's gradient is clipped at.
        max_steps: Stop after so many; None is all epochs.
        seed: Of initial weights, order, dropout and the actor's draws.
    """

    text: tuple[str, ...] = ("ntrex",)
    extra: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    samples: int = 1000
    held_out: float = 0.1
    epochs: int = 10
    batch_size: int = 32
    eta: float = 1.0
    reward: RewardWeights = field(default_factory=RewardWeights)
    baseline: bool = True
    actor_rate: float = 1e-3
    encoder_rate: float = 2e-5
    adaptor_rate: float = 1e-3
    train_embeddings: bool = False
    clip: float = 1.0
    max_steps: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields that have limits.

        Raises:
            ModelError: A value out of its range.
        """
        at_least(self, called="arca.{}".format, samples=1, epochs=1, batch_size=1, eta=0, actor_rate=0, encoder_rate=0,
                 adaptor_rate=0, max_steps=0)  # fmt: skip
        positive(self, "clip", called="arca.{}".format)
        if not 0 <= self.held_out < 1:
            raise ModelError(f"arca.held_out {self.held_out}: in [0, 1).")
        for name in self.extra:
            TranslatorSpec.parse(name)
        if not self.text:
            raise ModelError("arca.text: name at least one parallel corpus.")


@dataclass(frozen=True)
class LasrConfig:
    """Stage 2: the fusion learns similarity and retrieval; the two paths and the actor stay as they are.

    Attributes:
        ranking: Similarity data: ``stsb_multi_mt`` or ``file:PATH``; may be empty.
        retrieval: Queries and documents: parallel corpora, or ``file:PATH``; may be empty.
        languages: Canonical codes; empty is all that the data have.
        samples: Queries per source and language, from the top.
        ranking_samples: Pairs per source, from the top.
        held_out: Share of a parallel corpus' rows, from the end, on which each epoch is measured.
        epochs: Passes over the larger of the two.
        ranking_batch: Pairs per step; the paper's is 1.
        retrieval_batch: Queries per step.
        ranking_weight: Of the correlation loss in a step's.
        correlation: The correlation loss and its queue.
        loss: The retrieval loss and its queue.
        refresh: Every so many steps documents in the queue get their present vectors; 0 never.
        rank: Of LoRA on the fusing transformer; 0 trains the projection alone.
        alpha: LoRA's scale is alpha / rank.
        rate: Learning rate.
        clip: Norm that the gradient is clipped at.
        average: Measure and save the moving average of the weights.
        max_steps: Stop after so many; None is all epochs.
        seed: Of LoRA, order, language pairs and dropout.
    """

    ranking: tuple[str, ...] = ("stsb_multi_mt",)
    retrieval: tuple[str, ...] = ("ntrex",)
    languages: tuple[str, ...] = ()
    samples: int = 1000
    ranking_samples: int = 6000
    held_out: float = 0.1
    epochs: int = 3
    ranking_batch: int = 16
    retrieval_batch: int = 32
    ranking_weight: float = 1.0
    correlation: CorrelationConfig = field(default_factory=CorrelationConfig)
    loss: RetrievalConfig = field(default_factory=RetrievalConfig)
    refresh: int = 0
    rank: int = 16
    alpha: int = 32
    rate: float = 3e-4
    clip: float = 1.0
    average: bool = True
    max_steps: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields that have limits.

        Raises:
            ModelError: A value out of its range, or no data.
        """
        at_least(self, called="lasr.{}".format, samples=1, ranking_samples=1, epochs=1, ranking_batch=1,
                 retrieval_batch=1, ranking_weight=0, refresh=0, rank=0, alpha=1, rate=0, max_steps=0)  # fmt: skip
        positive(self, "clip", called="lasr.{}".format)
        if not 0 <= self.held_out < 1:
            raise ModelError(f"lasr.held_out {self.held_out}: in [0, 1).")
        if not self.ranking and not self.retrieval:
            raise ModelError("lasr: name data for ranking, for retrieval, or both.")


@dataclass(frozen=True)
class LiraConfig:
    """A LiRA and both stages of its training.

    Attributes:
        design: The model.
        arca: Stage 1.
        lasr: Stage 2.
        ablation: What is left out, for the name; see :meth:`without`.
    """

    design: Design = field(default_factory=Design)
    arca: ArcaConfig = field(default_factory=ArcaConfig)
    lasr: LasrConfig = field(default_factory=LasrConfig)
    ablation: Ablation | None = None

    def without(self, ablation: Ablation) -> LiraConfig:
        """The same without a part."""
        design, arca, lasr = self.design, self.arca, self.lasr
        if ablation is Ablation.CRITIC:
            design = dataclasses.replace(design, critic=None)
        elif ablation is Ablation.EMBEDS:
            design = dataclasses.replace(design, embedding_critic=False)
            arca = dataclasses.replace(arca, eta=0.0, reward=dataclasses.replace(arca.reward, similarity=0.0))
        elif ablation is Ablation.TRANSLATIONS:
            design = dataclasses.replace(design, translators=())
        elif ablation is Ablation.MULTILINGUAL:
            design = dataclasses.replace(design, paths=Paths.ENGLISH)
        else:
            lasr = dataclasses.replace(
                lasr,
                correlation=dataclasses.replace(lasr.correlation, max_len=0),
                loss=dataclasses.replace(lasr.loss, max_len=0),
            )
        return LiraConfig(design, arca, lasr, ablation)

    @property
    def label(self) -> str:
        """The first part of a trained model's name."""
        return "lira" + (f"-no-{self.ablation}" if self.ablation else "")

    @property
    def arca_label(self) -> str:
        """The same of a model after stage 1."""
        return self.label.replace("lira", "arca", 1)


def load_config(names: Sequence[str], changes: Sequence[str] = (), ablation: Ablation | None = None) -> LiraConfig:
    """Read configurations, by name or by path; each one's fields go before those of the ones named before it.

    Args:
        names: Shipped ones or YAML files.
        changes: ``FIELD=VALUE``, e.g. ``arca.epochs=3`` or ``design.bins=4``.
        ablation: What is left out.

    Raises:
        ModelError: No such configuration or field, or a value of the wrong kind.
    """
    config = configuration.read(LiraConfig, __package__, names, changes)
    return config.without(ablation) if ablation else config
