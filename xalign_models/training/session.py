"""The course of a training, from the check for an existing model to the saved model, and the order of rows."""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler, NoDuplicatesBatchSampler, ProportionalBatchSampler

from xalign_models.device import pick_device
from xalign_models.errors import DataError, ModelError
from xalign_models.models.saving import save
from xalign_models.paths import in_turn
from xalign_models.specs import ModelSpec
from xalign_models.training.processes import is_main_process, is_sharded, own_randomness, process_count, wait_for_all
from xalign_models.training.records import LOG, PACKAGES, claim, json_lines, last_checkpoint, training_record
from xalign_models.training.trainer import load_trained

logger = logging.getLogger(__name__)

Log = list[dict[str, Any]]
"""The log of a training, see :data:`~xalign_models.training.records.LOG`."""
Fit = Callable[[SentenceTransformer, Path], Log]
"""Trains a model in place, with checkpoints in a folder, and returns the log."""


def training_device(device: str | None) -> str:
    """The kind of device to train on: cpu, cuda or mps; by default the best available.

    Raises:
        ModelError: A single GPU is named by number, but the trainer uses the first one that it sees.
    """
    chosen = pick_device(device)
    if ":" in chosen:
        number = chosen.partition(":")[2]
        raise ModelError(f"--device {chosen}: set CUDA_VISIBLE_DEVICES={number} and give --device cuda.")
    return chosen


def train_once(
    spec: ModelSpec,
    identity: Mapping[str, Any],
    output: Path,
    datasets: Iterable[str],
    build: Callable[[], SentenceTransformer],
    fit: Fit | None,
) -> None:
    """Train a model and write it, unless ``output`` already holds the model of the same training.

    Checkpoints lie beside ``output``, in ``.<name>.training``, until the model is written: the same call resumes from
    the last one. Among the processes of ``accelerate launch`` the first one writes.

    Args:
        spec: Spec of the trained model.
        identity: Fields that determine the training, as JSON preserves them.
        output: Directory; an existing one is replaced at the end.
        datasets: mteb's names of the data sets and tasks that hold the training text.
        build: Makes the initial model, on the CPU.
        fit: Trains it; None trains nothing.

    Raises:
        ModelError: The checkpoints belong to another training, the loss is not finite, or a file cannot be written.
    """
    folder = output.parent / f".{output.name}.training"
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"Another process is training {output}; waiting for it."
    with in_turn(folder.with_suffix(".lock"), waiting) if is_main_process() else nullcontext():
        wait_for_all()  # no process looks for the model before the first one has its turn
        if training_record(output).get("config") == identity:
            logger.warning("%s exists with the same configuration; remove it to train it again.", output)
        else:
            if is_main_process():
                claim(folder, identity, output)
            model = build()
            log: Log = []
            if fit is not None:
                with own_randomness():
                    log = fit(model, folder)
                    wait_for_all()  # every process writes its random state into the last checkpoint
            if is_main_process():
                if fit is not None and is_sharded(model):
                    model = build()
                    load_trained(model, last_checkpoint(folder) or folder)
                model.xalign_spec = spec
                training: dict[str, Any] = {
                    "datasets": sorted(datasets),
                    "config": identity,
                    "steps": log[-1]["step"] if log else 0,
                    "seconds": log[-1]["seconds"] if log else 0.0,
                    "versions": {package: version(package) for package in PACKAGES},
                }
                if log and log[-1]["kind"] == "verdict":
                    training |= {"learnt": log[-1]["learnt"], "verdict": log[-1]["text"]}
                save(model.to("cpu"), output, training=training, files={LOG: json_lines(log)})
        if is_main_process():
            shutil.rmtree(folder, ignore_errors=True)  # also after a kill between saving and this line
    wait_for_all()


LEFT_OUT = 0.05
"""Share of the rows that an epoch may leave out without a warning; the next epoch leaves out others."""


def check_batches(sampler: NoDuplicatesBatchSampler, name: str) -> None:
    """Warn if an epoch leaves out rows of ``name``, because rows that share a text are never in the same batch.

    Raises:
        DataError: No batch has two rows.
    """
    sizes = [len(batch) for batch in islice(sampler, len(sampler))]
    if max(sizes, default=0) < 2:
        raise DataError(f"{name}: no batch has two rows, because any two have a text in common; add other rows.")
    rows, seen = len(sampler.dataset), sum(sizes)
    if seen < (1 - LEFT_OUT) * rows:
        logger.warning(
            "%s: an epoch sees %d of %d rows, because many share a text; lower batch_size or add other rows.",
            name,
            seen,
            rows,
        )


class InOrder(DefaultBatchSampler):
    """Batches in an order that depends only on seed and epoch, so a resumed training sees the same batches.

    All processes get the same number of batches of the same size: with several processes, the last batches repeat the
    first rows of the order. With a single process, the last batch may be shorter.

    Args:
        dataset: The data set; rows of the same kind are adjacent.
        batch_size: Rows of a process' batch.
        sorts: (rows, rows per batch) of each kind of rows, in order; None for one kind. Each batch has rows of every
            kind; a kind with fewer batches starts over when it runs out.
        **options: Options of sentence-transformers' samplers.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, sorts: Sequence[tuple[int, int]] | None = None, **options: Any
    ) -> None:
        super().__init__(dataset, batch_size=batch_size, **options)
        self.sampler = self  # with several processes, accelerate sets the epoch only on this attribute
        self.sorts = [(rows, size) for rows, size in sorts or [(len(dataset), batch_size)] if rows]

    def __len__(self) -> int:
        """Batches of all processes together."""
        processes = process_count()
        return max(-(-rows // (size * processes)) for rows, size in self.sorts) * processes

    def __iter__(self) -> Iterator[list[int]]:
        """Indices of the batches; with several processes, they take turns."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        orders, before = [], 0
        for rows, _ in self.sorts:
            orders.append((before + torch.randperm(rows, generator=generator)).tolist())
            before += rows
        single = len(orders) == 1 and process_count() == 1
        for number in range(len(self)):
            batch: list[int] = []
            for order, (_, size) in zip(orders, self.sorts, strict=True):
                places = range(number * size, (number + 1) * size)
                batch += [order[place % len(order)] for place in places if not single or place < len(order)]
            yield batch


class InTurns(ProportionalBatchSampler):
    """Batches of one training set each, shared among processes: all get the same number of batches.

    A single process gets every batch. Several processes get equal parts of each batch, without the remainder.

    Args:
        *sets: See sentence-transformers' sampler.
        whole: Distribute whole batches instead, and leave out the last ones if there are too few for all processes.
        **options: See sentence-transformers' sampler.
    """

    def __init__(self, *sets: Any, whole: bool = False, **options: Any) -> None:
        super().__init__(*sets, **options)
        self.whole, self.sampler = whole, self
        self.batch_size: Any = None  # otherwise accelerate leaves out batches of another size

    def __len__(self) -> int:
        """Batches of all processes together."""
        count, processes = int(super().__len__()), process_count()
        return count - count % processes if self.whole else count * processes

    def __iter__(self) -> Iterator[list[int]]:
        """Indices of the batches; with several processes, they take turns."""
        batches, processes = super().__iter__(), process_count()
        if self.whole:
            return chain.from_iterable(zip(*[batches] * processes, strict=False))
        cut = (batch[: len(batch) // processes * processes] for batch in batches)
        return (batch[rank::processes] for batch in cut if batch for rank in range(processes))
