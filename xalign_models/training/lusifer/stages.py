"""Data and training of the two stages."""

from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.base.training_args import BatchSamplers
from transformers import PreTrainedModel

from xalign_models.assets import Inspected
from xalign_models.backbones.adapters import copy_lora
from xalign_models.backbones.checkpoint import is_decoder_only, open_directory
from xalign_models.errors import ModelError
from xalign_models.specs import Dtype, digest
from xalign_models.training.lusifer.build import bases_of, parts_of
from xalign_models.training.lusifer.config import LusiferConfig, passage_prompt, query_prompt
from xalign_models.training.lusifer.data.base import TrainingRow
from xalign_models.training.lusifer.data.mining import mine
from xalign_models.training.lusifer.data.sources import evaluation_text, rows_of, source
from xalign_models.training.lusifer.parts import load_llm_tokenizer
from xalign_models.training.lusifer.stage_one import StageOne
from xalign_models.training.objective import MEASURED, DistillationLoss, Retrieval, contrastive_loss, set_aside
from xalign_models.training.processes import process_count
from xalign_models.training.session import InOrder, InTurns, Log, check_batches
from xalign_models.training.trainer import Trainer, arguments

HINT = "lower learning_rate, raise tau in stage 2, or set dtype to float32"


@dataclass(frozen=True)
class StageData:
    """The training data of a stage.

    Attributes:
        rows: Rows by training set: (source, target, task) in stage 1, (query, passage, hard negative, ...) in stage 2.
        fingerprint: Digest of all rows.
    """

    rows: dict[str, list[TrainingRow]]
    fingerprint: str

    def texts(self) -> list[str]:
        """Distinct queries or sources, one from each set in turn."""
        rows = [row for turn in zip_longest(*self.rows.values()) for row in turn if row]
        return list(dict.fromkeys(row[0] for row in rows))


def read(config: LusiferConfig, number: int, device: str) -> StageData:
    """The rows of a stage, with hard negatives if it mines them.

    Raises:
        DataError: A training set is missing or has no rows left.
        ModelError: A training set or the miner is unknown, or a set lacks the pairs that the stage needs.
    """
    stage, evaluated = config.stage(number), evaluation_text()
    rows_by_set: dict[str, list[TrainingRow]] = {}
    for data in stage.data:
        rows: list[TrainingRow] = rows_of(data, evaluated, config.seed)
        if number == 1 and data.task == "reconstruction":
            texts = [text for row in rows for text in row][: data.samples]
            rows = [(text, text, data.task) for text in texts]
        else:
            if not (source(data.source).pairs or stage.teacher):
                raise ModelError(f"data: {data.source} has no pairs; use it for reconstruction in stage 1.")
            if number == 1:
                rows = [(row[0], row[1], data.task) for row in rows]
            elif stage.mining:
                contradictions = {row[:2]: row[2:] for row in rows}  # SNLI's contradictions come before mined negatives
                mined = mine([row[:2] for row in rows], stage.mining, device)
                rows = [(*row[:2], *contradictions[row[:2]], *row[2:])[: 2 + stage.mining.negatives] for row in mined]
        rows_by_set[data.key(number)] = rows
    return StageData(rows_by_set, digest(rows_by_set))


def fit_one(
    model: SentenceTransformer,
    writer: PreTrainedModel | None,
    data: StageData,
    config: LusiferConfig,
    folder: Path,
    device: str,
) -> Log:
    """Train stage 1 in place, with checkpoints in ``folder``, and return the log.

    Raises:
        ModelError: The English model is an encoder, a tokenizer lacks a token, the loss is not finite, or a checkpoint
            cannot be written.
    """
    assert writer is not None
    if not is_decoder_only(writer.config):
        kind = writer.config.model_type
        raise ModelError(
            f"llm {config.llm} is an encoder ({kind}), which writes no text; train stage 2 with a teacher."
        )
    stage = config.stage(1)
    tokenizer, begin, end = load_llm_tokenizer(bases_of(config)["llm"])
    rows = [row for part in data.rows.values() for row in part]
    train, held_out = set_aside(rows, stage.held_out)
    fields = [{"source": row[0], "target": row[1], "reconstruct": row[2] == "reconstruction"} for row in rows]
    measured = [fields[i] for i in held_out]
    objective = StageOne(
        model[0], writer, tokenizer, (begin, end), config.max_tokens, stage.mask_ratio, measured, stage.measure_steps
    )
    share = stage.batch_size // process_count()
    size = stage.mini_batch or share
    columns = {name: [fields[i][name] for i in train] for name in ("source", "target", "reconstruct")}
    batches = {"batch_sampler": InOrder, "gradient_accumulation_steps": share // size}
    options = _trainer_options(model, config, 1, folder, device, size, **batches)
    return Trainer.of(objective, model, columns, **options).run()


def fit_two(model: SentenceTransformer, data: StageData, config: LusiferConfig, folder: Path, device: str) -> Log:
    """Train stage 2 in place, and return the log; each batch comes from one training set, without repeated texts.

    Raises:
        ModelError: The loss is not finite, or a checkpoint cannot be written.
        DataError: All rows of a training set share texts with each other.
    """
    stage = config.stage(2)
    size = stage.batch_size  # of all processes together
    tables, prompts, measured = DatasetDict(), {}, list[tuple[str, str]]()
    for part in stage.data:
        rows = data.rows[part.source]
        train, held_out = set_aside(rows, stage.held_out, MEASURED // len(stage.data))
        sides = ["query", "passage", *(f"negative_{i}" for i in range(1, len(rows[0]) - 1))]
        columns = {side: [rows[number][i] for number in train] for i, side in enumerate(sides)}
        table = tables[part.source] = Dataset.from_dict(columns)
        sampler = NoDuplicatesBatchSampler(table, size, drop_last=False, generator=torch.Generator(), seed=config.seed)
        check_batches(sampler, part.source)
        query, passage = query_prompt(part.instruction), passage_prompt(part.instruction)
        prompts[part.source] = {**dict.fromkeys(sides, passage), "query": query}
        measured += [(query + rows[i][0], passage + rows[i][1]) for i in held_out]
    cached = stage.mini_batch if stage.mini_batch and stage.mini_batch < size // process_count() else None
    options = {
        "prompts": prompts,
        "batch_sampler": BatchSamplers.NO_DUPLICATES,
        "multi_dataset_batch_sampler": InTurns,
    }
    return Trainer(
        model,
        instruments=Retrieval(model, measured, stage.tau, stage.measure_steps),
        train_dataset=tables,
        loss=partial(contrastive_loss, tau=stage.tau, mini_batch=cached, gather=True),
        **_trainer_options(model, config, 2, folder, device, size, **options),
    ).run()


def distil(
    model: SentenceTransformer, directory: Path, data: StageData, config: LusiferConfig, folder: Path, device: str
) -> Log:
    """Train stage 2 in place on the teacher's vectors of the queries, and return the log.

    Both models read a query after its instruction.

    Raises:
        ModelError: The teacher is missing or has vectors of another width, the loss is not finite, or a checkpoint
            cannot be written.
    """
    stage = config.stage(2)
    teacher = open_directory(Inspected(directory), device)
    width, own_width = teacher.get_embedding_dimension(), model.get_embedding_dimension()
    if width != own_width:
        raise ModelError(f"teacher {directory}: its vectors have {width} dimensions, the model's {own_width}.")
    parts = [(part.instruction, row) for part in stage.data for row in data.rows[part.source]]
    queries = [query_prompt(instruction) + row[0] for instruction, row in parts]
    train, held_out = set_aside([row for _, row in parts], stage.held_out)
    texts = list(dict.fromkeys(queries[i] for i in train))
    columns = {"text": texts, "label": teacher.encode(texts, batch_size=32).tolist()}
    answered = [(queries[i], *parts[i]) for i in held_out if len(parts[i][1]) > 1]  # a single text would find itself
    measured = [(query, passage_prompt(instruction) + row[1]) for query, instruction, row in answered]
    size = stage.batch_size // process_count()
    return Trainer(
        model,
        instruments=Retrieval(model, measured, stage.tau, stage.measure_steps),
        train_dataset=Dataset.from_dict(columns),
        loss=partial(DistillationLoss, tau=stage.tau),
        **_trainer_options(model, config, 2, folder, device, size, batch_sampler=InOrder),
    ).run()


def take_lora(model: SentenceTransformer, teacher: SentenceTransformer) -> None:
    """Copy the teacher's LoRA of the shared language model, in place, unless the model trains its own.

    The connector then only needs to learn to convey the text.
    """
    (theirs, checkpoint), (ours, own) = map(_llm, (teacher, model))
    if own and own == checkpoint and getattr(theirs, "peft_config", None) and not getattr(ours, "peft_config", None):
        copy_lora(theirs, ours)


def _llm(model: SentenceTransformer) -> tuple[Any, str | None]:
    """A model's language model and the fingerprint of its checkpoint; None and None if it has none."""
    first: Any = model[0]
    llm = parts_of(model).get("llm")
    base = None if llm is None else getattr(first, "llm_base", None) or first.base
    return llm, base and base["fingerprint"]


def _trainer_options(
    model: SentenceTransformer, config: LusiferConfig, number: int, folder: Path, device: str, size: int, **options: Any
) -> dict[str, Any]:
    """The trainer's options that all trainings share; ``options`` are additional arguments by the trainer's names."""
    stage = config.stage(number)
    args = arguments(
        folder,
        device,
        epochs=stage.epochs,
        max_steps=stage.max_steps,
        per_device_train_batch_size=size,
        learning_rate=stage.learning_rate,
        lr_scheduler_type=stage.scheduler,
        warmup_steps=stage.warmup,
        weight_decay=stage.weight_decay,
        max_grad_norm=stage.max_grad_norm,
        seed=config.seed,
        bf16=config.dtype is Dtype.BFLOAT16,  # trained weights stay float32, and are multiplied in bfloat16
        save_steps=stage.checkpoint_steps,
        **options,
    )
    trained = {name: [w for w in part.parameters() if w.requires_grad] for name, part in parts_of(model).items()}
    parts = {name: weights for name, weights in trained.items() if weights}
    return {"hint": HINT, "args": args, "parts": parts, "rates": stage.learning_rates}
