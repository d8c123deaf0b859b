"""Configuration of a LUSIFER training: fields, their limits, and the YAML files that hold them."""

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
from xalign_models.training.config import Scheduler
from xalign_models.training.lusifer.data.mining import Miner

PartName = Literal["encoder", "connector", "llm", "projection"]
"""Trainable parts: LoRA on the first and third, all weights of the others."""
PARTS: tuple[PartName, ...] = get_args(PartName)
Start = Literal["random", "least-squares"]
"""How the connector is initialised."""
Task = Literal["reconstruction", "completion"]
"""Tasks of stage 1."""


@configuration_class
class DataConfig:
    """A training set's part in a stage.

    Attributes:
        source: Name of the training set, one of ``xalign_models.training.lusifer.data.sources.SOURCES``.
        samples: Number of random rows; None for all.
        task: In stage 1: ``reconstruction`` of all its texts, or ``completion``, from the query to the passage.
        instruction: In stage 2: the instruction before each text, see
            :mod:`xalign_models.training.lusifer.instructions`.
    """

    source: str
    samples: AtLeastOne | None = None
    task: Task = "reconstruction"
    instruction: str = ""

    def key(self, number: int) -> str:
        """Name of its rows in a stage."""
        return f"{self.source}-{self.task}" if number == 1 else self.source


@configuration_class
class Stage:
    """One of the two stages.

    Attributes:
        label: Name of the stage in the model's name.
        train: The :data:`PARTS` to train; all others stay unchanged, to the bit.
        data: Training sets.
        start: Stage 2: label of the model to start from; None starts with an untrained connector.
        teacher: Stage 2: directory of a model of the same width; its vectors of the queries are learnt instead of a
            contrast of pairs (not in the paper).
        decay_at_gain: Stage 1: keep the learning rate constant until soft tokens save this many nats on held-out text,
            then decay it linearly to the last step; None follows ``scheduler``.
        batch_size: Rows of an optimisation step; in stage 2 the negatives of a row are the other rows' passages.
        mini_batch: Rows encoded together. Fewer than the batch save memory: stage 1 accumulates gradients, stage 2
            caches them, which encodes every text twice. None is the whole batch.
        mining: Stage 2: hard negatives; None for none.
        mask_ratio: Stage 1: share of the encoder's input tokens that are masked in reconstruction.
        tau: Stage 2: temperature of the loss.
        learning_rate: The peak learning rate.
        learning_rates: Learning rates of single :data:`PARTS`: a connector's random weights may need a higher rate than
            an encoder that must keep its languages.
        epochs: Passes over the data.
        max_steps: Optimisation steps, instead of epochs.
        scheduler: Learning-rate schedule.
        warmup: Share of all steps, or their number from 1 on.
        weight_decay: Weight decay of AdamW.
        max_grad_norm: Norm at which gradients are clipped.
        gradient_checkpointing: Recompute activations instead of keeping them.
        checkpoint_steps: Optimisation steps from one checkpoint to the next.
        held_out: Share of the rows to hold out for measuring, at most 128 rows.
        measure_steps: Optimisation steps from one measurement to the next.
    """

    label: str
    train: Annotated[tuple[PartName, ...], Field(min_length=1)]
    data: Annotated[tuple[DataConfig, ...], Field(min_length=1)]
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
            ModelError: A batch cannot be divided, or a rate names no part.
        """
        if self.mini_batch is not None and self.batch_size % self.mini_batch:
            raise ModelError(f"mini_batch {self.mini_batch}: it must divide batch_size {self.batch_size}.")
        if unknown := self.learning_rates.keys() - {*PARTS}:
            raise ModelError(f"learning_rates: {', '.join(unknown)} is none of {', '.join(PARTS)}.")


@configuration_class
class LusiferConfig:
    """A model and its two stages.

    Attributes:
        encoder: Asset, directory or hub id; None for the language model alone, as a baseline.
        llm: Likewise, decoder-only; None for the encoder alone.
        parameters: Number of trained weights of each part; a training of any other number is refused.
        stages: By number; None where there is no such stage.
        name: The backbone's part of the model's name; by default that of its checkpoints, ``encoder__llm``.
        encoder_revision: Revision on the hub.
        llm_revision: Revision on the hub.
        max_tokens: Maximum length of texts and of stage 1's targets, in tokens.
        dtype: Type of the checkpoints' weights; trained weights are float32, multiplied in this type.
        projection: Whether Linear, ReLU, Linear follows the mean; the paper has none.
        prompts: Prefixes of texts when the model is used, by mteb task, task type, ``query``, ``document`` or
            ``default``.
        rank: Rank of the LoRA matrices.
        alpha: LoRA's scale is alpha / rank.
        dropout: Dropout on the input of the LoRA matrices.
        connector: How a connector is initialised: at ``random`` (the paper), or by ``least-squares`` from the
            encoder's states of the training's texts to the language model's embeddings of them.
        seed: Seed of initial weights, the choice and order of rows, masks and dropout.
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
            ModelError: The type overflows, or a trained part is missing or has no entry in ``parameters``.
        """
        if self.dtype is Dtype.FLOAT16:
            raise ModelError("dtype float16: a model trained in it overflows; use float32 or bfloat16.")
        if self.encoder is None and self.llm is None:
            raise ModelError("encoder and llm: name at least one.")
        for number, stage in self.stages.items():
            if stage is not None:
                self._check(number, stage)

    def _check(self, number: int, stage: Stage) -> None:
        single = self.encoder is None or self.llm is None
        absent = {name for name in ("encoder", "llm") if getattr(self, name) is None}
        absent |= {"connector"} if single else set()
        absent |= set() if self.projection else {"projection"}
        if number == 1 and (later := {"llm", "projection"} & {*stage.train}):
            raise ModelError(f"stages.1.train: {min(later)} must stay as it is; it is trained in stage 2.")
        if number == 1 and single:
            raise ModelError("stages.1: it needs both an encoder and a llm; set stages.1 to null.")
        for part in stage.train:
            if part in absent or part not in self.parameters:
                reason = "there is none" if part in absent else "parameters does not say how many weights it has"
                raise ModelError(f"stages.{number}.train: {part} cannot be trained, {reason}.")
        keys = [data.key(number) for data in stage.data]
        if repeated := {key for key in keys if keys.count(key) > 1}:
            raise ModelError(f"stages.{number}.data: {min(repeated)} is there twice; name it once, with all samples.")

    def backbone(self, number: int, directory: Path) -> BackboneSpec:
        """A stage's model in ``directory``."""
        parts = [Path(name).name.lower().replace("__", "_") for name in (self.encoder, self.llm) if name]
        return BackboneSpec(
            self.name or "__".join(parts),
            str(directory),
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            tuned=self.stage(number).label,
            llm=self.llm,
        )

    def stage(self, number: int) -> Stage:
        """The configuration of a stage.

        Raises:
            ModelError: The configuration has none of that number.
        """
        stage = self.stages.get(number)
        if stage is None:
            raise ModelError(f"--stage {number}: this configuration has none.")
        return stage

    def to_dict(self, number: int) -> dict[str, Any]:
        """The fields that determine a stage's training, as plain data that JSON preserves.

        The teacher goes by its directory's name: the path says where it lies on this machine, not what it is.
        """
        fields = configuration.to_mapping(self)
        stage = fields.pop("stages")[number]
        del stage["checkpoint_steps"], stage["measure_steps"]
        stage["teacher"] = stage["teacher"] and Path(stage["teacher"]).name
        return {**fields, "stage": stage}


def load_config(names: Sequence[str], changes: Sequence[str] = ()) -> LusiferConfig:
    """Read configurations, by name or by path; a later one overrides the fields of those before it.

    Args:
        names: Names of shipped configurations, or YAML files.
        changes: ``FIELD=VALUE``, e.g. ``stages.2.max_steps=60``.

    Raises:
        ModelError: There is no such file, or it is no configuration; the message names the field.
    """
    return configuration.read(LusiferConfig, __package__, names, changes)
