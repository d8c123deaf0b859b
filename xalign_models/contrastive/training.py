"""Training: sentence-transformers' trainer on LoRA weights, stopped and gone on with at will."""

from __future__ import annotations

import json
import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from tqdm.auto import tqdm
from transformers import PrinterCallback

from xalign_models.contrastive.config import ContrastiveConfig
from xalign_models.contrastive.objective import contrastive_loss
from xalign_models.contrastive.pairs import Text
from xalign_models.errors import ModelError
from xalign_models.paths import atomic_write_text
from xalign_models.specs import Dtype

logger = logging.getLogger(__name__)

CHECKPOINT_STEPS = 5
"""Optimisation steps from one checkpoint to the next: the most that a killed training has to do again."""
LOG = "training_log.jsonl"
"""One JSON object per optimisation step: loss, gradient norm, learning rate, epoch, step, seconds."""
_WEIGHTS = "trained.safetensors"


def is_main_process() -> bool:
    """Whether this process writes: all do but those that ``accelerate launch`` starts beside the first."""
    return int(os.environ.get("RANK", "0")) == 0


def process_count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def json_lines(log: list[dict[str, Any]]) -> str:
    """A log as text: one JSON object a line."""
    return "".join(json.dumps(entry) + "\n" for entry in log)


class _DistinctTexts(NoDuplicatesBatchSampler):
    """No text twice in a batch, where it would be its own pair's negative; whatever language it is said to be in."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        columns = {name: [one["text"] for one in dataset[name]] for name in dataset.column_names}
        super().__init__(Dataset.from_dict(columns), **options)


class _Trainer(SentenceTransformerTrainer):
    """sentence-transformers' trainer, whose checkpoints hold the trained weights only, and which stops at a NaN."""

    def __init__(self, model: SentenceTransformer, *, folder: Path, **options: Any) -> None:
        super().__init__(model, **options)
        self.remove_callback(PrinterCallback)
        self._folder = folder
        self._start = time.perf_counter()
        self._before: float | None = None
        self._bar = tqdm(desc="train", unit=" steps", disable=None if self.is_world_process_zero() else True)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: the card is ours, and that one asks the hub."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The loss of one batch.

        Raises:
            ModelError: It is not finite.
        """
        loss = super().compute_loss(*args, **kwargs)
        if not torch.isfinite(loss[0] if isinstance(loss, tuple) else loss):
            raise ModelError(
                f"The loss is not finite in step {self.state.global_step + 1}; lower --lr, raise --tau or use "
                "--dtype float32."
            )
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the seconds so far, those before an interruption too, and write what is logged so far to a file."""
        if "loss" not in logs:  # the summary at the end
            self._bar.close()
            return
        if self._before is None:
            self._before = self.state.log_history[-1]["seconds"] if self.state.log_history else 0.0
            self._bar.reset(total=self.state.max_steps)
        logs["seconds"] = round(self._before + time.perf_counter() - self._start, 1)
        super().log(logs, start_time)
        self._bar.update(self.state.global_step - self._bar.n)
        self._bar.set_postfix(loss=f"{logs['loss']:.3f}")
        if self.is_world_process_zero():
            atomic_write_text(self._folder / LOG, json_lines(self.state.log_history))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        trained = {name: one.detach() for name, one in self.model.named_parameters() if one.requires_grad}
        save_file(trained, folder / _WEIGHTS)

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        self.model.load_state_dict(load_file(Path(checkpoint_path) / _WEIGHTS), strict=False)


def fit(
    model: SentenceTransformer, pairs: list[tuple[Text, Text]], config: ContrastiveConfig, folder: Path, device: str
) -> list[dict[str, Any]]:
    """Train the model's trainable weights in place; goes on from the last checkpoint in ``folder``.

    Args:
        model: With LoRA matrices, see :func:`~xalign_models.contrastive.objective.add_lora`.
        pairs: (anchor, positive).
        config: Hyperparameters.
        folder: For checkpoints and the log; made if it is not there.
        device: cpu, cuda or mps.

    Returns:
        The log, see :data:`LOG`.

    Raises:
        ModelError: The loss is not finite.
    """
    rows = {
        "anchor": [anchor._asdict() for anchor, _ in pairs],
        "positive": [positive._asdict() for _, positive in pairs],
    }
    batch = config.batch_size * config.accumulation if config.cached else config.batch_size
    steps = {"max_steps": config.max_steps} if config.max_steps is not None else {"num_train_epochs": config.passes}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch // (process_count() if config.cached else 1),
        gradient_accumulation_steps=1 if config.cached else config.accumulation // process_count(),
        batch_sampler=_DistinctTexts,
        prompts=model.prompts.get(model.default_prompt_name or "") or None,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.scheduler,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        seed=config.seed,
        use_cpu=device == "cpu",
        bf16=config.dtype is Dtype.BFLOAT16,  # the LoRA matrices stay float32, and are multiplied in bfloat16
        dataloader_pin_memory=device.startswith("cuda"),
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        **steps,
    )
    if process_count() == 1 and arguments.n_gpu > 1:
        arguments._n_gpu = 1  # otherwise torch's DataParallel, which is slower than one device
    trainer = _Trainer(
        model,
        folder=folder,
        args=arguments,
        train_dataset=Dataset.from_dict(rows),
        loss=partial(contrastive_loss, config=config),
    )
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    model.eval()
    return list(trainer.state.log_history)


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is complete: the trainer writes its state last."""
    complete = []
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            complete.append((json.loads(state.read_text(encoding="utf-8"))["global_step"], str(state.parent)))
        except (ValueError, KeyError):
            logger.warning("%s is not complete; an earlier checkpoint is used.", state.parent)
    return max(complete)[1] if complete else None
