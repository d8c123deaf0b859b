"""Training LoRA weights by sentence-transformers' trainer, with checkpoints to resume from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

from xalign_models.languages import TaggedText
from xalign_models.specs import Dtype
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.objective import contrastive_loss
from xalign_models.training.instruments import Retrieval
from xalign_models.training.processes import process_count
from xalign_models.training.trainer import Trainer, arguments

CHECKPOINT_STEPS = 5
"""Optimisation steps from one checkpoint to the next: the most that a killed training has to repeat."""


class _DistinctTexts(NoDuplicatesBatchSampler):
    """Batches without repeated texts, whatever language they are tagged with: a repeat would be its own negative."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        columns = {name: [entry["text"] for entry in dataset[name]] for name in dataset.column_names}
        super().__init__(Dataset.from_dict(columns), **options)


def fit(
    model: SentenceTransformer,
    pairs: list[tuple[TaggedText, TaggedText]],
    config: ContrastiveConfig,
    folder: Path,
    device: str,
    held_out: Sequence[tuple[TaggedText, TaggedText]] = (),
) -> list[dict[str, Any]]:
    """Train the model's trainable weights in place, resuming from the last checkpoint in ``folder``.

    Args:
        model: A model with LoRA matrices, see :func:`~xalign_models.training.contrastive.objective.add_lora`.
        pairs: (anchor, positive).
        config: Hyperparameters.
        folder: Folder of checkpoints and log; created if missing.
        device: cpu, cuda or mps.
        held_out: Pairs to measure on.

    Returns:
        The log, see :data:`~xalign_models.training.records.LOG`.

    Raises:
        ModelError: The loss is not finite.
    """
    rows = {
        "anchor": [anchor._asdict() for anchor, _ in pairs],
        "positive": [positive._asdict() for _, positive in pairs],
    }
    batch = config.batch_size * config.accumulation if config.cached else config.batch_size
    steps = {"max_steps": config.max_steps} if config.max_steps is not None else {"num_train_epochs": config.passes}
    prompt = model.prompts.get(model.default_prompt_name or "") or None
    measured = [(text._asdict(), translation._asdict()) for text, translation in held_out]
    args = arguments(
        folder,
        device,
        per_device_train_batch_size=batch // (process_count() if config.cached else 1),
        gradient_accumulation_steps=1 if config.cached else config.accumulation // process_count(),
        batch_sampler=_DistinctTexts,
        prompts=prompt,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.scheduler,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        seed=config.seed,
        bf16=config.dtype is Dtype.BFLOAT16,  # the LoRA matrices stay float32, and are multiplied in bfloat16
        save_steps=CHECKPOINT_STEPS,
        **steps,
    )
    trainer = Trainer(
        model,
        folder=folder,
        hint="lower --lr, raise --tau or use --dtype float32",
        parts={"lora": [weight for weight in model.parameters() if weight.requires_grad]},
        instruments=Retrieval(model, measured, config.tau, prompt=prompt),
        args=args,
        train_dataset=Dataset.from_dict(rows),
        loss=partial(contrastive_loss, config=config),
    )
    return trainer.run()
