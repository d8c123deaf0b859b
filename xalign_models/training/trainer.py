"""sentence-transformers' trainer with resumable checkpoints and the measurements of a method."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from torch import nn

from xalign_models.backbones.checkpoint import quiet
from xalign_models.errors import ModelError
from xalign_models.linalg import onednn
from xalign_models.paths import atomic_write_text
from xalign_models.progress import live
from xalign_models.training.borrowed import OpenTrainer, use_one_gpu
from xalign_models.training.objective import MEASURE, Collator, Instruments, Objective, ObjectiveLoss
from xalign_models.training.processes import gathered, is_sharded, process_count, sharded_like, whole
from xalign_models.training.records import LOG, STATE, WEIGHTS, json_lines, last_checkpoint

PLACE = ("epoch", "step", "seconds")
Parts = Mapping[str, Sequence[nn.Parameter]]
"""The trained weights of a model, by part."""


def arguments(
    folder: Path, device: str, *, epochs: int, max_steps: int | None, **options: Any
) -> SentenceTransformerTrainingArguments:
    """The trainer's arguments: settings that all trainings share, and ``options`` by sentence-transformers' names."""
    steps = {"num_train_epochs": epochs} if max_steps is None else {"max_steps": max_steps}
    result = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        use_cpu=device == "cpu",
        dataloader_pin_memory=device.startswith("cuda"),
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        **steps,
        **options,
    )
    result.dataloader_drop_last = False  # set for several processes, which our samplers give the same number of batches
    if process_count() == 1 and result.n_gpu > 1:
        use_one_gpu(result)  # otherwise torch's DataParallel, which is slower than one device
    return result


def load_trained(model: nn.Module, checkpoint: Path) -> None:
    """Load a checkpoint's trained weights into a model, in place; all other weights stay the same.

    Raises:
        ModelError: The model's weights with gradients are not exactly those of the checkpoint.
    """
    weights = load_file(checkpoint / WEIGHTS)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if other := weights.keys() ^ trained.keys():
        raise ModelError(
            f"{checkpoint} does not match the weights that this training changes (e.g. {min(other)}); remove "
            f"{checkpoint.parent} to start over."
        )
    with torch.no_grad():
        for name, weight in trained.items():
            weight.copy_(sharded_like(weights[name], weight))


class _MeasureCallback(transformers.TrainerCallback):
    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.global_step:
            self.trainer.evaluate()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        instruments = self.trainer.instruments
        self.trainer.measured |= instruments.step()
        control.should_evaluate = bool(instruments.every) and state.global_step % instruments.every == 0

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        every = self.trainer.instruments.every
        control.should_evaluate = not every or state.global_step % every != 0


class Trainer(OpenTrainer):
    """A trainer whose checkpoints contain only the trained weights; it stops when the loss is not finite.

    Args:
        model: The model to train; only weights with gradients change.
        hint: Advice for a loss that is not finite.
        instruments: Measurements of the training, with their state for checkpoints.
        parts: The trained weights by part; the log records the gradient norm of each part.
        inner: The model to save at the end; checkpoints use its names of weights. By default ``model``, which may
            be only its wrapper in training.
        rates: Learning rates of individual parts.
        clip_parts: Clip the gradient of each part separately instead of the whole gradient.
        **options: Options of sentence-transformers' trainer.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        hint: str,
        instruments: Instruments,
        parts: Parts,
        inner: nn.Module | None = None,
        rates: Mapping[str, float] | None = None,
        clip_parts: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        model.base_model_prefix = "none"  # otherwise accelerate tries to shard Normalize, which fails
        self._inner = model if inner is None else inner
        self.instruments = instruments
        self.measured: dict[str, Any] = {}
        name_of = {weight: name for name, weight in model.named_parameters()}
        self._parts = {part: [name_of[weight] for weight in weights] for part, weights in parts.items()}
        self._clip_parts = clip_parts
        patterns = {part: "|".join(map(re.escape, names)) for part, names in self._parts.items() if names}
        mapping = {f"(^|[.])({patterns[part]})$": rate for part, rate in (rates or {}).items() if part in patterns}
        self.args.learning_rate_mapping = mapping
        self.remove_callback(transformers.PrinterCallback)
        self.add_callback(_MeasureCallback(self))
        self._folder = Path(self.args.output_dir)
        self._hint = hint
        self._start = time.perf_counter()
        self._before: float | None = None
        self._seen = Counter[str]()
        hidden: dict[str, Any] = {} if self.is_world_process_zero() else {"disable": True}
        self._bar = live(desc="train", unit=" steps", leave=True, **hidden)

    @classmethod
    def of(cls, objective: Objective, inner: nn.Module, rows: Mapping[str, Sequence[Any]], **options: Any) -> Trainer:
        """The trainer of an objective, which wraps the model ``inner`` and collates the columns of the training set."""
        from datasets import Dataset

        return cls(
            SentenceTransformer(modules=[objective], device="cpu"),
            inner=inner,
            instruments=objective,
            train_dataset=Dataset.from_dict(dict(rows)),
            data_collator=Collator(objective),
            loss=ObjectiveLoss,
            **options,
        )

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: our card replaces sentence-transformers' card, which queries the hub."""

    def run(self) -> list[dict[str, Any]]:
        """Train the model in place, resuming from the last checkpoint if there is one.

        Returns:
            The log, see :data:`~xalign_models.training.records.LOG`.

        Raises:
            ModelError: The loss is not finite, or a checkpoint cannot be written. The previous one is kept.
        """
        if self.args.bf16 and self.args.device.type == "cpu":
            onednn.is_slow("bfloat16", "Training with dtype float32 takes less time.")
        checkpoint = last_checkpoint(self._folder)
        state = transformers.TrainerState.load_from_json(str(checkpoint / "trainer_state.json")) if checkpoint else None
        if checkpoint and state and state.global_step >= state.max_steps > 0:
            self.load_checkpoint(checkpoint)  # train() would do another step within the epoch
            self.state = state
            if state.log_history[-1]["kind"] != "measure":
                self.evaluate()
        else:
            recomputes = any(getattr(part, "is_activation_checkpointing", False) for part in self._inner.modules())
            # checkpointing recomputes activations in another thread
            with nullcontext() if recomputes else onednn.Linear():
                self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.model.eval()
        log = list(self.state.log_history)
        measured = [entry for entry in log if entry["kind"] == "measure"]
        verdict = self.instruments.verdict(measured[0], measured[-1]) if measured else None
        if verdict:
            log.append({"kind": "verdict", **verdict._asdict(), **{name: log[-1][name] for name in PLACE}})
        return log

    def collect_features(self, inputs: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
        """The columns of sentence-transformers' collator, or the features of an objective's batch."""
        if "features" in inputs:
            return [inputs["features"]], None
        features: tuple[list[dict[str, Any]], Any] = super().collect_features(inputs)
        return features

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of a step, each with its share of target tokens divided by the mean share of all processes.

        The mean loss of a micro-batch times its share, averaged over all, is the mean over the step's tokens.
        """
        batches, count = super().get_batch_samples(*args, **kwargs)
        masks = [batch.get("features", {}).get("target_mask") for batch in batches]
        if batches and all(mask is not None for mask in masks):
            tokens = torch.stack([mask.sum() for mask in masks]).double()
            for batch, share in zip(batches, tokens / gathered(tokens).mean(), strict=True):
                batch["share"] = float(share)
        return batches, count

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The loss of one batch.

        Raises:
            ModelError: The loss is not finite.
        """
        tensors = inputs.get("features", inputs)
        masks = [mask for name, mask in tensors.items() if name.endswith("attention_mask")]
        self._seen["rows"] += inputs.get("rows", len(masks[0]) if masks else 0)
        if masks:  # not of streams that were computed before the training
            self._seen["tokens"] += sum(int(mask.sum()) for mask in masks)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        loss = loss * inputs["share"] if "share" in inputs else loss
        if not torch.isfinite(loss[0] if isinstance(loss, tuple) else loss):
            raise ModelError(f"The loss is not finite in step {self.state.global_step + 1}; {self._advice()}")
        return loss

    def clip_gradients(self, model: Any) -> Any:
        """Record the norm of each part's gradient, then clip the gradients."""
        weights = dict(self.model.named_parameters())  # sharding has replaced the weights that the trainer got
        parts = {part: [weights[name] for name in names] for part, names in self._parts.items()}
        grads = {part: [w.grad for w in weights if w.grad is not None] for part, weights in parts.items()}
        norms = {part: whole(torch.nn.utils.get_total_norm(grad)).cpu() for part, grad in grads.items()}
        self.measured |= {f"grad_norm_{name}": float(norm) for name, norm in norms.items()}
        if not self._clip_parts:
            return super().clip_gradients(model)
        for trained in parts.values():
            torch.nn.utils.clip_grad_norm_(trained, self.args.max_grad_norm)
        return torch.stack(list(norms.values())).norm()

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Log the instruments' measurements; every process takes them all.

        A sharded objective measures inside its own forward pass, in which the processes gather its weights.
        """
        measured: dict[str, Any]
        with torch.no_grad():
            if is_sharded(self._inner) and isinstance(self.instruments, Objective):
                measured = self.model_wrapped({MEASURE: True})[MEASURE]
                self.model_wrapped.reshard()  # a forward pass without a backward pass leaves outer weights whole
            else:
                measured = self.instruments.measure()
        if measured:
            self.log({"kind": "measure", **measured})
        return measured

    def _advice(self) -> str:
        checkpoint = last_checkpoint(self._folder)
        return f"{self._hint}." + (f" The last good checkpoint is kept in {checkpoint}." if checkpoint else "")

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Add measurements and elapsed seconds, including those before an interruption, and write the log to a file."""
        if "train_runtime" in logs:  # the summary at the end
            self._bar.close()
            return
        if self._before is None:
            self._before = self.state.log_history[-1]["seconds"] if self.state.log_history else 0.0
            self._bar.reset(total=self.state.max_steps)
        logs["seconds"] = round(self._before + time.perf_counter() - self._start, 1)
        if "kind" not in logs:
            logs = {"kind": "step", **logs, **self._seen, **self.measured}
            self._seen, self.measured = Counter(), {}
            self._bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
            self._bar.update(self.state.global_step - self._bar.n)
        super().log(logs, start_time)
        if self.is_world_process_zero():
            atomic_write_text(self._folder / LOG, json_lines(self.state.log_history))

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint.

        Raises:
            ModelError: The disk is full; the incomplete checkpoint is removed.
        """
        step = self.state.global_step
        try:
            with quiet():  # transformers reports that it orders checkpoints of the same second by number
                super().save_checkpoint(*args, **kwargs)
        except (OSError, RuntimeError, SafetensorError) as error:
            if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
                raise
            shutil.rmtree(self._folder / f"checkpoint-{step}", ignore_errors=True)  # to free space on the disk
            checkpoint = last_checkpoint(self._folder)
            raise ModelError(
                f"Cannot write the checkpoint of step {step} to {self._folder} (is the disk full?): "
                f"{str(error).splitlines()[0]}. Free some space and run the same command again: it resumes "
                + (f"from {checkpoint}." if checkpoint else "from the start.")
            ) from None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the trained weights: all processes gather their shards, one of them writes.

        Raises:
            ModelError: A weight is not finite.
        """
        named = self._inner.named_parameters()
        trained = {name: whole(weight.detach()) for name, weight in named if weight.requires_grad}
        if not self.args.should_save:
            return
        if broken := [name for name, weight in trained.items() if not torch.isfinite(weight).all()]:
            raise ModelError(
                f"{broken[0]} is not finite after step {self.state.global_step}, which is discarded; {self._advice()}"
            )
        folder = Path(output_dir or self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: weight.contiguous() for name, weight in trained.items()}, folder / WEIGHTS)
        if state := self.instruments.state():
            torch.save(state, folder / STATE)

    def load_checkpoint(self, checkpoint: Path) -> None:
        """Load the trained weights and the instruments' state."""
        load_trained(self._inner, checkpoint)
        state = checkpoint / STATE
        if state.is_file():
            self.instruments.restore(torch.load(state, weights_only=True, map_location="cpu"))
