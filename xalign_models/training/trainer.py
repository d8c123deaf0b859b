"""sentence-transformers' trainer, stopped and gone on with at will."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from tqdm.auto import tqdm

from xalign_models.errors import ModelError
from xalign_models.paths import atomic_write_text
from xalign_models.training.processes import process_count
from xalign_models.training.records import LOG, WEIGHTS, json_lines, last_checkpoint


def arguments(folder: Path, device: str, **options: Any) -> SentenceTransformerTrainingArguments:
    """The trainer's arguments, with what all trainings have in common.

    Args:
        folder: For checkpoints and the log.
        device: cpu, cuda or mps.
        **options: All others, by sentence-transformers' names.
    """
    found = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        use_cpu=device == "cpu",
        dataloader_pin_memory=device.startswith("cuda"),
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    if process_count() == 1 and found.n_gpu > 1:
        found._n_gpu = 1  # otherwise torch's DataParallel, which is slower than one device
    return found


def load_trained(model: nn.Module, checkpoint: Path) -> None:
    """Put a checkpoint's trained weights into a model, in place; all others stay.

    Args:
        model: Its weights with gradients are those that the checkpoint must have, no more and no fewer.
        checkpoint: Its directory.

    Raises:
        ModelError: The checkpoint has weights of other names.
    """
    weights = load_file(checkpoint / WEIGHTS)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if other := weights.keys() ^ trained.keys():
        raise ModelError(
            f"{checkpoint} holds other weights than are trained (e.g. {min(other)}); remove {checkpoint.parent} to "
            "start over."
        )
    with torch.no_grad():
        for name, one in trained.items():
            one.copy_(_divided(weights[name], one))


def _divided(weight: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A whole weight as this process has it."""
    return distribute_tensor(weight, like.device_mesh, like.placements) if isinstance(like, DTensor) else weight


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """The inverse of :func:`_divided`, of which each process makes its part."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


class Trainer(SentenceTransformerTrainer):
    """The trainer, whose checkpoints hold the trained weights alone, and which stops at a loss that is not finite.

    Args:
        model: What is trained; weights with gradients are.
        inner: The model that is written in the end, by whose names checkpoints hold its weights; ``model`` unless that
            is put around it for the training alone.
        folder: For checkpoints and the log.
        hint: What to do about a loss that is not finite.
        **options: The trainer's own.
    """

    def __init__(
        self, model: SentenceTransformer, *, folder: Path, hint: str, inner: nn.Module | None = None, **options: Any
    ) -> None:
        super().__init__(model, **options)
        model.base_model_prefix = "none"  # or accelerate takes Normalize for a layer to shard, which it cannot be
        self._inner = model if inner is None else inner
        self.remove_callback(transformers.PrinterCallback)
        self._folder = folder
        self._hint = hint
        self._start = time.perf_counter()
        self._before: float | None = None
        self._seen = {"rows": 0, "tokens": 0}
        self._bar = tqdm(desc="train", unit=" steps", disable=None if self.is_world_process_zero() else True)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: the card is ours, and that one asks the hub."""

    def run(self) -> list[dict[str, Any]]:
        """Train the model in place, from the last checkpoint on if there is one.

        Returns:
            The log, an entry per optimisation step.

        Raises:
            ModelError: The loss is not finite, or a checkpoint cannot be written; the last one is kept.
        """
        checkpoint = last_checkpoint(self._folder)
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.model.eval()
        return list(self.state.log_history)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The loss of one batch.

        Raises:
            ModelError: It is not finite.
        """
        masks = [one for name, one in inputs.items() if name.endswith("attention_mask")]
        self._seen["rows"] += len(masks[0]) if masks else 0
        self._seen["tokens"] += sum(int(mask.sum()) for mask in masks)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if not torch.isfinite(loss[0] if isinstance(loss, tuple) else loss):
            raise ModelError(f"The loss is not finite in step {self.state.global_step + 1}; {self._advice()}")
        return loss

    def _advice(self) -> str:
        kept = last_checkpoint(self._folder)
        return f"{self._hint}." + (f" The last good checkpoint is kept in {kept}." if kept else "")

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add what was read and the seconds so far, those before an interruption too, and write the log to a file."""
        if "loss" not in logs:  # the summary at the end
            self._bar.close()
            return
        if self._before is None:
            self._before = self.state.log_history[-1]["seconds"] if self.state.log_history else 0.0
            self._bar.reset(total=self.state.max_steps)
        logs |= {**self._seen, "seconds": round(self._before + time.perf_counter() - self._start, 1)}
        self._seen = dict.fromkeys(self._seen, 0)
        super().log(logs, start_time)
        self._bar.update(self.state.global_step - self._bar.n)
        self._bar.set_postfix(loss=f"{logs['loss']:.3f}")
        if self.is_world_process_zero():
            atomic_write_text(self._folder / LOG, json_lines(self.state.log_history))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        step = self.state.global_step
        try:
            super()._save_checkpoint(*args, **kwargs)
        except (OSError, RuntimeError, SafetensorError) as error:
            if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
                raise
            shutil.rmtree(self._folder / f"checkpoint-{step}", ignore_errors=True)  # it would take what room there is
            kept = last_checkpoint(self._folder)
            raise ModelError(
                f"Cannot write a checkpoint of step {step} to {self._folder} (is the disk full?): "
                f"{str(error).splitlines()[0]}. Make room and give the same command: it goes on "
                + (f"from {kept}." if kept else "from the start.")
            ) from None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the trained weights: all processes put their shards together, one of them writes.

        Raises:
            ModelError: A weight is not finite.
        """
        trained = {name: _whole(one.detach()) for name, one in self._inner.named_parameters() if one.requires_grad}
        if not self.args.should_save:
            return
        if broken := [name for name, one in trained.items() if not torch.isfinite(one).all()]:
            raise ModelError(
                f"{broken[0]} is not finite after step {self.state.global_step}, which is not kept; {self._advice()}"
            )
        folder = Path(output_dir or self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: one.contiguous() for name, one in trained.items()}, folder / WEIGHTS)

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        load_trained(self._inner, Path(checkpoint_path))
