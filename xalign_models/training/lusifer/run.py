"""LUSIFER, from a configuration to the directory of a trained model."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel

from xalign_models import assets
from xalign_models.backbones.checkpoint import open_directory
from xalign_models.errors import ModelError
from xalign_models.models.metadata import published_datasets
from xalign_models.models.names import directory_of
from xalign_models.specs import BackboneSpec, Dtype, ModelSpec
from xalign_models.training.lusifer import build, stages
from xalign_models.training.lusifer.config import LusiferConfig
from xalign_models.training.lusifer.data.sources import source
from xalign_models.training.lusifer.module import Lusifer
from xalign_models.training.lusifer.parts import load_llm_tokenizer
from xalign_models.training.lusifer.start import fit_connector
from xalign_models.training.plan import FLOPS, TRAINED, Row, size_of
from xalign_models.training.processes import share_of
from xalign_models.training.records import differing, training_record
from xalign_models.training.session import Log, train_once, training_device

logger = logging.getLogger(__name__)


def train(
    config: LusiferConfig, number: int, output: Path | None = None, start: Path | None = None, device: str | None = None
) -> tuple[ModelSpec, Path]:
    """Train a stage and write its model; the same call resumes an interrupted training.

    Args:
        config: The model and its stages.
        number: 1 or 2.
        output: Directory, by default named after the model; an existing one is replaced at the end.
        start: For stage 2: directory of the model to start from; by default stage 1's output.
        device: cpu, cuda or mps; by default the best available.

    Returns:
        The spec of the trained model, and its directory.

    Raises:
        ModelError: The model to start from is missing or has another configuration, the checkpoints belong to another
            training, the loss is not finite, or a file cannot be written.
        DataError: A training set is missing or has no rows left.
    """
    stage = config.stage(number)
    device = training_device(device)
    share_of(stage.batch_size, "batch_size", (stage.mini_batch or 1) if number == 1 else 1)
    teacher = _teacher(number, stage.teacher)
    output = output or default_output(config, number)
    spec = ModelSpec(config.backbone(number, output))
    start_directory = _start(config, number, start)
    data = stages.read(config, number, device)
    identity = {
        **config.to_dict(number),
        "checkpoints": {part: base["fingerprint"] for part, base in build.bases_of(config).items()},
        "started_from": start_directory and assets.directory_fingerprint(start_directory),
        "text": data.fingerprint,
        "teacher": teacher and assets.directory_fingerprint(teacher),
    }
    writers: list[PreTrainedModel | None] = []

    def make() -> SentenceTransformer:
        if start_directory:
            files, options = assets.Inspected(start_directory), {"torch_dtype": str(config.dtype)}
            model = open_directory(files, "cpu", model_kwargs=options)
            build.set_prompts(model, config)
        else:
            model, writer = _begin(config, data, device)
            writers.append(writer if number == 1 else None)
        build.prepare(model, config, stage)
        if teacher:
            stages.take_lora(model, open_directory(assets.Inspected(teacher), "cpu"))
        return model

    def fit(model: SentenceTransformer, folder: Path) -> Log:
        if number == 1:
            return stages.fit_one(model, writers.pop(), data, config, folder, device)
        if teacher:
            return stages.distil(model, teacher, data, config, folder, device)
        return stages.fit_two(model, data, config, folder, device)

    trained_on = _datasets(config, number)
    trained_on |= set(training_record(start_directory).get("datasets", ())) if start_directory else set()
    train_once(spec, identity, output, trained_on, make, fit)
    return spec, output


def plan(config: LusiferConfig, number: int) -> Row:
    """Steps, time and memory of a stage if each text has as many tokens as the configuration allows.

    Raises:
        AssetError: A checkpoint is unavailable.
        ModelError: A training set has no number of samples.
    """
    stage, length = config.stage(number), config.max_tokens
    if missing := [data.source for data in stage.data if data.samples is None]:
        raise ModelError(f"--plan: give the number of samples of {', '.join(missing)}.")
    steps = stage.max_steps or stage.epochs * -(-sum(data.samples or 0 for data in stage.data) // stage.batch_size)
    texts = 1 if number == 1 or stage.teacher else 2 + (stage.mining.negatives if stage.mining else 0)
    distilled = number == 2 and stage.teacher
    micro = stage.batch_size if distilled else stage.mini_batch or stage.batch_size
    cached = number == 2 and micro < stage.batch_size
    passes = 1 + cached + stage.gradient_checkpointing
    at_once = micro * length * (1 if cached else texts)
    bytes_each = 2 if config.dtype is Dtype.BFLOAT16 else 4
    flops, memory = 0.0, float(TRAINED * sum(config.parameters.get(part, 0) for part in stage.train))
    for part, name, revision in (
        ("encoder", config.encoder, config.encoder_revision),
        ("llm", config.llm, config.llm_revision),
    ):
        if name:
            size, backward = size_of(name, revision), part == "llm" or "encoder" in stage.train
            longer = 2 if number == 1 and part == "llm" else 1  # the soft tokens, and the text to write
            flops += size.flops(
                stage.batch_size * texts * length * longer, passes + backward if backward else 1 + cached
            )
            memory += bytes_each * size.parameters
            kept = size.activations(at_once * longer, checkpointing=stage.gradient_checkpointing)
            memory += kept * bytes_each / 2 if backward else 0
            memory += 8 * at_once * size.vocabulary if longer == 2 else 0  # logits and their gradient
    return Row.of(f"stage {number}, {stage.label}", steps, flops / FLOPS, memory)


def untrained(config: LusiferConfig, output: Path | None = None) -> tuple[ModelSpec, Path]:
    """Write the untrained model, the baseline of both stages, and return its spec and its directory."""
    output, backbone = output or default_output(config, 0), _untrained(config)
    data = None if config.connector == "random" else stages.read(config, _first(config), "cpu")
    bases = {part: base["fingerprint"] for part, base in build.bases_of(config).items()}
    fields = {name: getattr(config, name) for name in ("connector", "dtype", "max_tokens", "projection", "seed")}
    identity = {"stage": "untrained", "checkpoints": bases, "text": data and data.fingerprint, **fields}
    identity["prompts"] = dict(config.prompts)
    spec = ModelSpec(dataclasses.replace(backbone, model=str(output)))
    datasets = _datasets(config, _first(config) if data else None)
    train_once(spec, identity, output, datasets, lambda: _begin(config, data)[0], None)
    return spec, output


def _datasets(config: LusiferConfig, number: int | None) -> set[str]:
    """Data sets of the published checkpoints and, if a stage is given, of its text."""
    text = config.stage(number).data if number else ()
    return published_datasets(config.encoder, config.llm).union(*(source(data.source).trains for data in text))


def default_output(config: LusiferConfig, number: int) -> Path:
    """The directory named after the model of a stage, 0 for the untrained model."""
    return directory_of(ModelSpec(config.backbone(number, Path()) if number else _untrained(config)).name)


def _first(config: LusiferConfig) -> int:
    return min((number for number, stage in config.stages.items() if stage), default=1)


def _untrained(config: LusiferConfig) -> BackboneSpec:
    label = "lusifer-untrained" + ("" if config.connector == "random" else f"-{config.connector}")
    return dataclasses.replace(config.backbone(_first(config), Path()), tuned=label)


def _begin(
    config: LusiferConfig, data: stages.StageData | None, device: str = "cpu"
) -> tuple[SentenceTransformer, PreTrainedModel | None]:
    """The untrained model and its writer; the connector is fitted to the text if the configuration says so."""
    model, writer = build.begin(config)
    first: Any = model[0]
    if config.connector == "least-squares" and data and isinstance(first, Lusifer):
        tokenizer, begin, end = load_llm_tokenizer(build.bases_of(config)["llm"])
        explained = fit_connector(first, tokenizer, (begin, end), data.texts(), device=device)
        logger.info("The connector explains %.0f%% of the variance of the word embeddings.", 100 * explained)
    return model, writer


def _teacher(number: int, name: str | None) -> Path | None:
    """The directory of the teacher, an asset or else a local directory; None for a stage without a teacher."""
    if name in {asset.name for asset in assets.list_assets()}:
        return assets.install(str(name))
    if name and not Path(name, "modules.json").is_file():
        raise ModelError(
            f"stages.{number}.teacher {name} is not a model; train one first, e.g. with --config llm-alone --stage 2, "
            "and name its directory."
        )
    return Path(name) if name else None


def _start(config: LusiferConfig, number: int, start: Path | None) -> Path | None:
    """The directory of the model that a stage starts from, checked; None for an untrained model."""
    stage = config.stage(number)
    if number == 1 or stage.start is None:
        if start:
            raise ModelError(f"--start {start}: stage {stage.label!r} starts with an untrained connector.")
        return None
    if start is None:
        start = directory_of(f"{stage.start}__{config.backbone(number, Path()).name}")
    trained = training_record(start).get("config")
    if trained is None:
        raise ModelError(
            f"Stage 2 starts from {stage.start}, but {start} is not a model of stage 1. Train it with the same "
            "--config and --stage 1, or name its directory with --start."
        )
    shared = ("encoder", "llm", "max_tokens", "projection", "rank", "alpha", "dropout")
    before = {key: trained.get(key) for key in shared} | {"label": trained.get("stage", {}).get("label")}
    fields = config.to_dict(number)
    if changed := differing(before, {key: fields[key] for key in shared} | {"label": stage.start}):
        raise ModelError(f"--start {start} was trained with another configuration: {', '.join(changed)}.")
    return start
