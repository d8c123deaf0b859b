"""What a LUSIFER training is determined by: fields, their limits, and the YAML files that hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from xalign_models import configuration
from xalign_models.configuration import AtLeastOne, NonNegative, Positive, Seed, Share, configuration_class
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Dtype
from xalign_models.training.lusifer.data.mining import Miner
from xalign_models.training.schedulers import Scheduler

Part = Literal["encoder", "connector", "llm", "projection"]
"""What may be trained: LoRA on the first and third, the weights themselves of the others."""
PARTS: tuple[Part, ...] = get_args(Part)
Start = Literal["random", "least-squares"]
"""Of the connector."""
Task = Literal["reconstruction", "completion"]
"""Of stage 1."""


@configuration_class
class Data:
    """A training set's part in a stage.

    Attributes:
        source: Its name, one of ``xalign_models.training.lusifer.data.sources.SOURCES``.
        samples: Rows, drawn at random; None is all.
        task: In stage 1: ``reconstruction`` of all its texts, or ``completion``, from the query to the passage.
        instruction: In stage 2: what the model is told before each text, see
            :mod:`xalign_models.training.lusifer.instructions`.
    """

    source: str
    samples: AtLeastOne | None = None
    task: Task = "reconstruction"
    instruction: str = ""

    def key(self, number: int) -> str:
        """What its rows are called in a stage."""
        return f"{self.source}-{self.task}" if number == 1 else self.source


@configuration_class
class Stage:
    """One of the two stages.

    Attributes:
        label: What it is called in the model's name.
        train: The :data:`PARTS` that are trained; all others stay as they are, to the bit.
        data: Training sets.
        start: Stage 2: the label of the model that it begins with; None begins with an untrained connector.
        teacher: Stage 2: directory of a model of the same width whose vectors of the queries are learnt, instead of
            contrasting pairs (not in the paper).
        decay_at_gain: Stage 1: keep the learning rate until soft tokens save so many nats on held-out text, then let
            it fall linearly to the last step; None goes by ``scheduler``.
        batch_size: Rows of an optimisation step; in stage 2, each one's negatives are all others' passages.
        mini_batch: Rows that are encoded together. Less than the batch saves memory: stage 1 adds up gradients, stage
            2 caches them, which encodes every text twice. None is the whole batch.
        mining: Stage 2: hard negatives; None for none.
        mask_ratio: Stage 1: share of the encoder's input tokens that are masked in reconstruction.
        tau: Stage 2: temperature of the loss.
        learning_rate: At its height.
        learning_rates: Those of the :data:`PARTS` that have one of their own: a connector's random weights may want a
            higher one than an encoder that must not be pulled away from its languages.
        epochs: Passes over the data.
        max_steps: Optimisation steps, instead of epochs.
        scheduler: Of the learning rate.
        warmup: Share of all steps, or their number from 1 on.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients are clipped at it.
        gradient_checkpointing: Compute activations again instead of keeping them.
        checkpoint_steps: Optimisation steps from one checkpoint to the next.
        held_out: Share of the rows, of 128 at most, that are measured on and not trained on.
        measure_steps: Optimisation steps from one measurement to the next.
    """

    label: str
    train: Annotated[tuple[Part, ...], Field(min_length=1)]
    data: Annotated[tuple[Data, ...], Field(min_length=1)]
    start: str | None = None
    teacher: str | None = None
    batch_size: Annotated[int, Field(ge=2)] = 256
    mini_batch: AtLeastOne | None = None
    mining: Miner | None = None
    mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5
    tau: Positive = 0.05
    learning_rate: Positive = 1.5e-4
    learning_rates: Mapping[str, Positive] = dataclasses.field(default_factory=dict)
    epochs: AtLeastOne = 1
    max_steps: AtLeastOne | None = None
    scheduler: Scheduler = Scheduler.COSINE
    warmup: NonNegative = 0.1
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0
    gradient_checkpointing: bool = False
    checkpoint_steps: AtLeastOne = 50
    held_out: Share = 0.02
    decay_at_gain: Positive | None = None
    measure_steps: AtLeastOne = 50

    def __post_init__(self) -> None:
        """Check what the types of the fields do not.

        Raises:
            ModelError: Batches that cannot be divided, or a rate of what is no part.
        """
        if self.mini_batch is not None and self.batch_size % self.mini_batch:
            raise ModelError(f"mini_batch {self.mini_batch}: it must divide batch_size {self.batch_size}.")
        if unknown := self.learning_rates.keys() - {*PARTS}:
            raise ModelError(f"learning_rates: {', '.join(unknown)} is none of {', '.join(PARTS)}.")


@configuration_class
class LusiferConfig:
    """A model and its two stages.

    Attributes:
        encoder: Asset, directory or hub id; None is the language model alone, to compare with.
        llm: Likewise, decoder-only; None is the encoder alone.
        parameters: How many weights of each part are trained when it is: a training that would train any other number
            does not begin.
        stages: By number; None where there is no such stage.
        name: The model's part of its name; by default those of its checkpoints, ``encoder__llm``.
        encoder_revision: Of the hub.
        llm_revision: Of the hub.
        max_tokens: Texts, and stage 1's targets, are cut at so many tokens.
        dtype: Of the two checkpoints' weights; what is trained is float32, multiplied in this type.
        projection: Whether Linear, ReLU, Linear follows the mean; the paper has none.
        prompts: What is put before texts when the model is used, by mteb task, task type, ``query``, ``document`` or
            ``default``.
        rank: Of the LoRA matrices.
        alpha: Their scale is alpha / rank.
        dropout: Of their input.
        connector: How an untrained connector begins: at ``random`` (the paper), or by ``least-squares`` from the
            encoder's states of the training's texts to the language model's embeddings of them.
        seed: Of initial weights, the choice and order of rows, masks and dropout.
    """

    encoder: str | None
    llm: str | None
    parameters: Mapping[str, int]
    stages: Mapping[int, Stage | None]
    name: str = ""
    encoder_revision: str | None = None
    llm_revision: str | None = None
    max_tokens: Annotated[int, Field(ge=4)] = 512
    dtype: Dtype = Dtype.BFLOAT16
    projection: bool = False
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rank: AtLeastOne = 16
    alpha: AtLeastOne = 32
    dropout: Share = 0.0
    connector: Start = "random"
    seed: Seed = 0

    def __post_init__(self) -> None:
        """Check what the types of the fields do not.

        Raises:
            ModelError: A type that overflows, or a part that is trained and is not there or not counted.
        """
        if self.dtype is Dtype.FLOAT16:
            raise ModelError("dtype float16: a model trained in it overflows; use float32 or bfloat16.")
        if self.encoder is None and self.llm is None:
            raise ModelError("encoder and llm: name at least one.")
        for number, stage in self.stages.items():
            if stage is not None:
                self._check(number, stage)

    def _check(self, number: int, stage: Stage) -> None:
        alone = self.encoder is None or self.llm is None
        absent = {name for name in ("encoder", "llm") if getattr(self, name) is None}
        absent |= {"connector"} if alone else set()
        absent |= set() if self.projection else {"projection"}
        if number == 1 and (later := {"llm", "projection"} & {*stage.train}):
            raise ModelError(f"stages.1.train: {min(later)} must stay as it is; it is trained in stage 2.")
        if number == 1 and alone:
            raise ModelError("stages.1: it needs both an encoder and a llm; set stages.1 to null.")
        for part in stage.train:
            if part in absent or part not in self.parameters:
                what = "there is none" if part in absent else "parameters does not say how many weights it has"
                raise ModelError(f"stages.{number}.train: {part} cannot be trained, {what}.")
        keys = [one.key(number) for one in stage.data]
        if repeated := {one for one in keys if keys.count(one) > 1}:
            raise ModelError(
                f"stages.{number}.data: {min(repeated)} is there twice; name it once, with all its samples."
            )

    def backbone(self, number: int, directory: Path) -> BackboneSpec:
        """A stage's model in ``directory``."""
        parts = [Path(one).name.lower().replace("__", "_") for one in (self.encoder, self.llm) if one]
        return BackboneSpec(
            self.name or "__".join(parts),
            str(directory),
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            tuned=self.stage(number).label,
            llm=self.llm,
        )

    def stage(self, number: int) -> Stage:
        """A stage.

        Raises:
            ModelError: The configuration has none of that number.
        """
        stage = self.stages.get(number)
        if stage is None:
            raise ModelError(f"--stage {number}: this configuration has none.")
        return stage

    def to_dict(self, number: int) -> dict[str, Any]:
        """What determines a stage's training, as plain data as it comes back from JSON."""
        fields = configuration.to_mapping(self)
        stage = fields.pop("stages")[number]
        del stage["checkpoint_steps"], stage["measure_steps"]
        return {**fields, "stage": stage}


def load_config(names: Sequence[str], changes: Sequence[str] = ()) -> LusiferConfig:
    """Read configurations, by name or by path; each one's fields go before those of the ones named before it.

    Args:
        names: Shipped ones or YAML files.
        changes: ``FIELD=VALUE``, e.g. ``stages.2.max_steps=60``.

    Raises:
        ModelError: There is no such file, or it is no configuration; the message names the field.
    """
    return configuration.read(LusiferConfig, __package__, names, changes)
