"""Configuration of a LUSIFER model and its two stages."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from xalign_models import configuration
from xalign_models.configuration import AtLeastOne, NonNegative, Positive, Seed, Share, configuration_class
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Dtype
from xalign_models.training.config import Scheduler, TrainingDtype
from xalign_models.training.lusifer.data.mining import Miner


def query_prompt(instruction: str) -> str:
    r"""``{instruction}.\n``, with one full stop; empty without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}.\n" if instruction.strip() else ""


def passage_prompt(instruction: str) -> str:
    r"""``{instruction}. Candidate:\n``; empty without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}. Candidate:\n" if instruction.strip() else ""


_SIMILAR = "Retrieve semantically similar text."
_QUESTION = "Given a question, retrieve passages that answer the question."
_INSTRUCTIONS: dict[str, list[str]] = tomllib.loads(
    files(__package__).joinpath("instructions.toml").read_text(encoding="utf-8")
)
"""The authors' instructions -> mteb's task types, and tasks whose instruction differs from their type's."""

RELEASED = {
    "default": f"{_SIMILAR}.\n",
    "query": f"{_QUESTION}.\n",
    "document": f"{_QUESTION}. Candidate:\n",
    **{name: f"{instruction}.\n" for instruction, names in _INSTRUCTIONS.items() for name in names},
}
"""Prompts of the authors' own evaluation, by task name, task type, ``query`` / ``document`` or ``default``.

As in the authors' training, a full stop follows even an instruction that ends in one. Nine English retrieval and
reranking tasks, such as FEVER, have their own instruction in the authors' code; here they use the one for questions.
"""


PartName = Literal["encoder", "connector", "llm", "projection"]
"""Trainable parts: LoRA on the encoder and the language model, all weights of the others."""
PARTS: tuple[PartName, ...] = get_args(PartName)
Start = Literal["random", "least-squares"]
"""Initialisation of the connector."""
Task = Literal["reconstruction", "completion"]
"""Tasks of stage 1."""


@configuration_class
class DataConfig:
    """A training set in a stage.

    Attributes:
        source: Name of the training set, one of ``xalign_models.training.lusifer.data.sources.SOURCES``.
        samples: Number of random rows; None for all.
        task: Stage 1: ``reconstruction`` of all texts, or ``completion`` of a query by its passage.
        instruction: Stage 2: the instruction before each text, see
            :mod:`xalign_models.training.lusifer.config`.
    """

    source: str
    samples: AtLeastOne | None = None
    task: Task = "reconstruction"
    instruction: str = ""

    def key(self, number: int) -> str:
        """Name of the rows in a stage."""
        return f"{self.source}-{self.task}" if number == 1 else self.source


@configuration_class
class Stage:
    """One of the two stages.

    Attributes:
        label: Name of the stage in the model's name.
        train: The :data:`PARTS` to train; all others stay exactly the same.
        data: Training sets.
        start: Stage 2: label of the model to start from; None starts with an untrained connector.
        teacher: Stage 2: directory or asset of a model of the same width, whose vectors of the queries are the targets
            instead of a contrast of pairs (not in the paper).
        batch_size: Rows per optimisation step; in stage 2 the negatives of a row are the other rows' passages.
        mini_batch: Rows encoded together. A smaller number than the batch saves memory: stage 1 accumulates gradients,
            stage 2 caches them, which encodes every text twice. None means the whole batch, as always with a teacher.
        mining: Stage 2: settings of hard negatives; None for no hard negatives.
        mask_ratio: Stage 1: share of the encoder's input tokens that are masked in reconstruction.
        tau: Stage 2: temperature of the loss.
        learning_rate: The peak learning rate.
        learning_rates: Learning rates of individual :data:`PARTS`: a random connector may need a higher rate than an
            encoder that must keep its languages.
        epochs: Passes over the data.
        max_steps: Optimisation steps, instead of epochs.
        scheduler: Learning-rate schedule.
        warmup: Share of all steps if below 1, else number of steps.
        weight_decay: Weight decay of AdamW.
        max_grad_norm: Norm at which gradients are clipped.
        gradient_checkpointing: Recompute activations instead of keeping them.
        checkpoint_steps: Optimisation steps between checkpoints.
        held_out: Share of the rows to hold out for measuring, at most 128 rows.
        measure_steps: Optimisation steps between measurements.
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
    scheduler: Scheduler = "cosine"
    warmup: NonNegative = 0.1
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0
    gradient_checkpointing: bool = False
    checkpoint_steps: AtLeastOne = 50
    held_out: Share = 0.02
    measure_steps: AtLeastOne = 50

    def __post_init__(self) -> None:
        if self.mini_batch is not None and self.batch_size % self.mini_batch:
            raise ModelError(f"mini_batch {self.mini_batch}: it must divide batch_size {self.batch_size}.")
        if unknown := self.learning_rates.keys() - {*PARTS}:
            raise ModelError(f"learning_rates: {', '.join(unknown)} is not one of {', '.join(PARTS)}.")


def _require_name(field: str, name: str) -> None:
    """Raise a ModelError if a text cannot be part of a folder's name."""
    if not re.fullmatch(r"[\w.-]+", name) or ".." in name:
        raise ModelError(f"{field} {name!r}: write letters, digits, _, - and single full stops.")


@configuration_class
class LusiferConfig:
    """A model and its two stages.

    Attributes:
        encoder: Asset, directory or hub id; None for the language model alone, as a baseline.
        llm: Asset, directory or hub id of a decoder-only model; None for the encoder alone.
        parameters: Expected number of trained weights of each part; training is refused if the numbers differ. Empty
            checks nothing.
        stages: Stages by number; None for a stage that the configuration lacks.
        name: The backbone's part of the model's name; by default the names of the checkpoints, ``encoder__llm``.
        encoder_revision: Revision of the encoder on the hub.
        llm_revision: Revision of the language model on the hub.
        max_tokens: Maximum length of texts and of stage 1's targets, in tokens.
        dtype: Type of the checkpoints' weights; trained weights are float32, multiplied in this type.
        projection: Whether Linear, ReLU, Linear follows the mean; not in the paper.
        prompts: Prefixes of texts when the model is used, by mteb task, task type, ``query``, ``document`` or
            ``default``.
        rank: Rank of the LoRA matrices.
        alpha: LoRA's scale is alpha / rank.
        dropout: Dropout on the input of the LoRA matrices.
        connector: Initialisation of the connector: ``random`` (the paper), or ``least-squares``, which maps the
            encoder's states of the training texts to the language model's embeddings of them.
        seed: Seed of initial weights, the choice and order of rows, masks and dropout.
    """

    encoder: str | None
    llm: str | None
    stages: Mapping[int, Stage | None]
    parameters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    name: str = ""
    encoder_revision: str | None = None
    llm_revision: str | None = None
    max_tokens: Annotated[int, Field(ge=4)] = 512
    dtype: TrainingDtype = Dtype.BFLOAT16
    projection: bool = False
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rank: AtLeastOne = 16
    alpha: AtLeastOne = 32
    dropout: Share = 0.0
    connector: Start = "random"
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.encoder is None and self.llm is None:
            raise ModelError("encoder and llm: name at least one.")
        _require_name("name", self.name or "default")
        for number, stage in self.stages.items():
            if stage is not None:
                self._check(number, stage)

    def _check(self, number: int, stage: Stage) -> None:
        _require_name(f"stages.{number}.label", stage.label)
        absent = {name for name in ("encoder", "llm") if getattr(self, name) is None}
        absent |= {"connector"} if absent else set()
        absent |= set() if self.projection else {"projection"}
        if number == 1 and (later := {"llm", "projection"} & {*stage.train}):
            raise ModelError(f"stages.1.train: {min(later)} is trained in stage 2 only.")
        if number == 1 and "connector" in absent:
            raise ModelError("stages.1 needs both an encoder and an llm; set stages.1 to null.")
        if stage.teacher and stage.mining:
            raise ModelError(f"stages.{number}.mining: a teacher uses no hard negatives; set it to null.")
        for part in stage.train:
            if part in absent or (self.parameters and part not in self.parameters):
                reason = "the model has none" if part in absent else "parameters lacks its number of weights"
                raise ModelError(f"stages.{number}.train: {part} cannot be trained: {reason}.")
        keys = [data.key(number) for data in stage.data]
        if repeated := {key for key in keys if keys.count(key) > 1}:
            raise ModelError(f"stages.{number}.data names {min(repeated)} twice; name it once, with all samples.")

    def backbone(self, number: int, directory: Path) -> BackboneSpec:
        """The spec of a stage's model in ``directory``."""
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
            ModelError: The configuration has no stage of that number.
        """
        stage = self.stages.get(number)
        if stage is None:
            raise ModelError(f"--stage {number}: this configuration does not have this stage.")
        return stage

    def to_dict(self, number: int) -> dict[str, Any]:
        """The fields that determine a stage's training, as plain data that JSON preserves.

        The teacher is identified by its name or its directory's name, because paths differ between machines.
        """
        fields = configuration.to_mapping(self)
        stage = fields.pop("stages")[number]
        del stage["checkpoint_steps"], stage["measure_steps"]
        stage["teacher"] = stage["teacher"] and Path(stage["teacher"]).name
        return {**fields, "stage": stage}


load_config = partial(configuration.read, LusiferConfig, __package__)
"""Reads configurations by name or path, and changed fields, e.g. ``stages.2.max_steps=60``."""
