"""Configuration of a LiRA model and its training; the defaults are the paper's if it states them."""

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

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
from xalign_models.errors import ModelError
from xalign_models.generation.critics import parse_critic
from xalign_models.generation.translators import TranslatorSpec
from xalign_models.specs import Dtype
from xalign_models.training.lira.actor import RewardWeights
from xalign_models.training.lira.adaptor import AlignedStreams, Sentence
from xalign_models.training.lira.ndcg import RetrievalConfig
from xalign_models.training.lira.ranks import CorrelationConfig


class Stream(StrEnum):
    """Representation of the English model's tokens used as the English stream."""

    EMBEDDINGS = "embeddings"
    """Their input embeddings, without special tokens (the paper's appendix D.1)."""
    STATES = "states"
    """Their last hidden states before any training (the paper's section 4.2)."""


class Paths(StrEnum):
    """Streams that the fusion reads."""

    BOTH = "both"
    MULTILINGUAL = "multilingual"
    ENGLISH = "english"


class Ablation(StrEnum):
    """A component to leave out, as in the paper's table 5."""

    CRITIC = "critic"
    """No language model judges the translations."""
    EMBEDS = "embeds"
    """No embedding critic: no anchor loss, and no cosine in features and reward."""
    TRANSLATIONS = "translations"
    """The English path reads the text itself."""
    MULTILINGUAL = "multilingual"
    """The fusion reads only the English stream."""
    QUEUE = "queue"
    """No histories: the losses see only the current batch."""


_WITHOUT = {
    Ablation.CRITIC: ("design.critic=null",),
    Ablation.EMBEDS: ("design.embedding_critic=false", "arca.eta=0", "arca.reward.similarity=0"),
    Ablation.TRANSLATIONS: ("design.translators=[]",),
    Ablation.MULTILINGUAL: ("design.paths=english",),
    Ablation.QUEUE: ("lasr.correlation.max_len=0", "lasr.loss.max_len=0"),
}
"""Fields that leave a component out."""


@configuration_class
class Design:
    """Architecture of the model.

    Attributes:
        multilingual: Backbone of the multilingual path: registered name, directory or hub id of an encoder.
        english: Backbone of the English path, which also fuses the streams: an embedding model or a language model.
        dtype: Type of the English path's frozen weights, by default its backbone's own; trained weights are float32.
        translators: Sources of candidates, ``kind:model``, the best of each kind first.
        slots: Candidates per text; None is one per translator.
        critic: ``generate:MODEL`` or ``expected_score:MODEL``; None uses the embedding critic alone.
        embedding_critic: Whether the actor sees the cosine of the two paths.
        bins: S, the number of bins that token streams are pooled to.
        sides: Streams that are adapted; training collapses with ``shared``.
        sentence: Pooling of a stream to one vector in Arca.
        stream: Token representation of the English stream.
        centre: Subtract the mean token of the training translations from the English stream. Otherwise, the mean alone
            satisfies the anchor loss, and a text is as close to any translation as to its own.
        paths: Streams that the fusion reads.
        residual: Whether the embedding is the English model's own vector of the chosen translation, as published with
            its pooling and prompt, plus the fused vector times a trained gate that starts at zero, so English texts
            stay close to their original vectors. Not in the paper.
    """

    multilingual: str = "multilingual-e5-small-q4"
    english: str = "smollm2-135m-q4"
    dtype: Dtype | None = None
    translators: Names = ()
    slots: AtLeastOne | None = None
    critic: str | None = None
    embedding_critic: bool = True
    bins: AtLeastOne = 8
    sides: AlignedStreams = AlignedStreams.ONE_SIDED
    sentence: Sentence = Sentence.FLATTEN
    stream: Stream = Stream.EMBEDDINGS
    centre: bool = True
    paths: Paths = Paths.BOTH
    residual: bool = False

    def __post_init__(self) -> None:
        for name in self.translators:
            TranslatorSpec.parse(name)
        if len(set(self.translators)) < len(self.translators):
            raise ModelError(f"translators: each may be named once, not {', '.join(self.translators)}.")
        if self.critic is not None:
            parse_critic(self.critic)


@configuration_class
class ArcaConfig:
    """Stage 1: the multilingual path is anchored to the English path, and the actor learns to choose translations.

    Attributes:
        text: Parallel corpora whose texts are translated, e.g. ``ntrex``.
        extra: Additional sources of candidates for stage 1 only, such as ``reference:ntrex``. In stage 2 a query whose
            translation is its document would teach nothing.
        languages: Canonical codes; empty for all languages of a corpus.
        samples: Rows per corpus and language, from the top.
        held_out: Share of the rows, from the end, to measure each epoch on; never used for training.
        epochs: Passes over the texts.
        batch_size: Texts per step.
        eta: Weight of the anchor loss (eq. 9); the paper does not state it.
        reward: Weights of eq. 7.
        baseline: Whether to subtract the expected reward; the paper does not.
        actor_rate: Learning rate of the actor; the paper states none of the three rates.
        encoder_rate: Learning rate of the multilingual encoder; 0 freezes it.
        adaptor_rate: Learning rate of the adaptor.
        train_embeddings: Whether to train the encoder's token embeddings too.
        clip: Norm at which each part's gradient is clipped.
        max_steps: Optimisation steps, instead of epochs; 0 trains nothing.
        seed: Seed of initial weights, order, dropout and the actor's draws.
    """

    text: Annotated[Names, Field(min_length=1)] = ("ntrex",)
    extra: Names = ()
    languages: Names = ()
    samples: AtLeastOne = 1000
    held_out: Share = 0.1
    epochs: AtLeastOne = 10
    batch_size: AtLeastOne = 32
    eta: NonNegative = 1.0
    reward: RewardWeights = field(default_factory=RewardWeights)
    baseline: bool = True
    actor_rate: NonNegative = 1e-3
    encoder_rate: NonNegative = 2e-5
    adaptor_rate: NonNegative = 1e-3
    train_embeddings: bool = False
    clip: Positive = 1.0
    max_steps: Count | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        for name in self.extra:
            TranslatorSpec.parse(name)
        if not (self.actor_rate or self.encoder_rate or self.adaptor_rate or self.max_steps == 0):
            raise ModelError("arca: all three rates are 0, so nothing would be trained; give one, or set max_steps=0.")


@configuration_class
class LasrConfig:
    """Stage 2: the fusion learns similarity and retrieval; the two paths and the actor stay unchanged.

    Attributes:
        ranking: Similarity data: ``stsb_multi_mt`` or ``file:PATH``; may be empty.
        retrieval: Queries and documents: parallel corpora, or ``file:PATH``; may be empty.
        languages: Canonical codes; empty for all languages of the data.
        samples: Queries per source and language, from the top.
        ranking_samples: Pairs per source, from the top.
        held_out: Share of a parallel corpus' rows, from the end, to measure each epoch on.
        epochs: Passes over the larger of the two data sets.
        ranking_batch: Pairs per step; the paper uses 1.
        retrieval_batch: Queries per step.
        ranking_weight: Weight of the correlation loss.
        correlation: The correlation loss and its queue.
        loss: The retrieval loss and its queue.
        refresh: Steps between updates of the vectors in the document queue; 0 never updates them.
        rank: Rank of LoRA on the fusing transformer; 0 trains only the projection.
        alpha: LoRA's scale is alpha / rank.
        rate: Learning rate.
        gate_rate: Learning rate of the residual's gate. It starts at zero, and Adam moves it by at most the rate per
            step.
        clip: Norm at which each part's gradient is clipped.
        average: Whether to measure and save the moving average of the weights.
        max_steps: Optimisation steps, instead of epochs; 0 trains nothing.
        seed: Seed of LoRA, order, language pairs and dropout.
    """

    ranking: Names = ("stsb_multi_mt",)
    retrieval: Names = ("ntrex",)
    languages: Names = ()
    samples: AtLeastOne = 1000
    ranking_samples: AtLeastOne = 6000
    held_out: Share = 0.1
    epochs: AtLeastOne = 3
    ranking_batch: AtLeastOne = 16
    retrieval_batch: AtLeastOne = 32
    ranking_weight: NonNegative = 1.0
    correlation: CorrelationConfig = field(default_factory=CorrelationConfig)
    loss: RetrievalConfig = field(default_factory=RetrievalConfig)
    refresh: Count = 0
    rank: Count = 16
    alpha: AtLeastOne = 32
    rate: NonNegative = 3e-4
    gate_rate: NonNegative = 3e-3
    clip: Positive = 1.0
    average: bool = True
    max_steps: Count | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not self.ranking and not self.retrieval:
            raise ModelError("lasr: name ranking data, retrieval data, or both.")
        need, most = self.correlation.n_min, self.correlation.max_len + self.ranking_batch
        if self.ranking and need > most and (self.correlation.max_len or not self.retrieval):
            raise ModelError(
                f"lasr.correlation.n_min {need}: history and batch together have at most {most} pairs; lower it, or "
                "raise max_len or ranking_batch."
            )


@configuration_class
class LiraConfig:
    """A LiRA model and both stages of its training.

    Attributes:
        design: The model.
        arca: Stage 1.
        lasr: Stage 2.
        ablation: The omitted component, for the model's name.
    """

    design: Design = field(default_factory=Design)
    arca: ArcaConfig = field(default_factory=ArcaConfig)
    lasr: LasrConfig = field(default_factory=LasrConfig)
    ablation: Ablation | None = None

    @property
    def label(self) -> str:
        """The first part of the trained model's name."""
        return "lira" + (f"-no-{self.ablation}" if self.ablation else "")

    @property
    def arca_label(self) -> str:
        """The first part of the model's name after stage 1."""
        return self.label.replace("lira", "arca", 1)


def load_config(names: Sequence[str], changes: Sequence[str] = (), ablation: str | None = None) -> LiraConfig:
    """Read configurations by name or path, apply changes, e.g. ``arca.epochs=3``, and remove an ablated component.

    Raises:
        ModelError: There is no such configuration, field or component, or a value is invalid.
    """
    if ablation is not None:
        if ablation not in tuple(Ablation):
            raise ModelError(f"--ablate {ablation}: choose one of {', '.join(Ablation)}.")
        changes = (*changes, *_WITHOUT[Ablation(ablation)], f"ablation={ablation}")
    config = configuration.read(LiraConfig, __package__, names, changes)
    if config.ablation != ablation:
        raise ModelError(f"ablation={config.ablation} only names the model: use --ablate {config.ablation} instead.")
    return config
