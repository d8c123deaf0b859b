"""The order of training rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler

from xalign_models.training.processes import process_count


class InOrder(DefaultBatchSampler):
    """Batches in an order that depends on seed and epoch alone, so that a resumed training sees the same batches.

    All processes get the same number of batches of the same size: with several processes, the last batches repeat the
    first rows of the order. With a single process, the last batch may be shorter.

    Args:
        dataset: The data set; rows of the same sort are adjacent.
        batch_size: Rows of a process' batch.
        sorts: (rows, rows per batch) of each sort of rows, in order; None for one sort. Each batch has rows of every
            sort; a sort with fewer batches starts over when it runs out.
        **options: Options of sentence-transformers' samplers.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, sorts: Sequence[tuple[int, int]] | None = None, **options: Any
    ) -> None:
        super().__init__(dataset, batch_size=batch_size, **options)
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
