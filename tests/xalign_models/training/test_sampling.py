"""The order of training rows: by seed and epoch alone, every row seen, the same count for every process."""

from __future__ import annotations

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

from xalign_models.errors import DataError
from xalign_models.training.session import InOrder, check_batches


def batches(count, size, epoch=0, seed=0, **options):
    sampler = InOrder(range(count), size, drop_last=False, seed=seed, **options)
    sampler.set_epoch(epoch)
    found = list(sampler)
    assert len(found) == len(sampler)
    return found


def test_seed_and_epoch_alone_determine_the_order():
    assert batches(20, 6) == batches(20, 6)
    assert batches(20, 6) != batches(20, 6, epoch=1)
    assert batches(20, 6, seed=1) == batches(20, 6, epoch=1)
    assert [len(batch) for batch in batches(20, 6)] == [6, 6, 6, 2]
    assert sorted(row for batch in batches(20, 6) for row in batch) == list(range(20))


def test_sorts_stand_in_every_batch_and_the_shorter_begins_again():
    found = batches(13, 5, sorts=[(3, 2), (10, 3)])
    assert len(found) == 4
    assert all(sum(row < 3 for row in batch) == 2 and len(batch) == 5 for batch in found)
    later = [row for batch in found for row in batch if row >= 3]
    assert sorted(later[:10]) == list(range(3, 13)) and later[10:] == later[:2]
    assert all(len(batch) == 3 for batch in batches(10, 3, sorts=[(0, 2), (10, 3)])[:3])


@pytest.mark.parametrize("sorts", [None, [(4, 1), (16, 3)]])
def test_two_processes_read_the_batches_of_one_with_twice_the_rows(monkeypatch, sorts):
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = InOrder(range(20), 4, sorts=sorts, drop_last=False, seed=3)
    shares = [list(BatchSamplerShard(sampler, 2, rank, even_batches=False)) for rank in range(2)]
    assert len(shares[0]) == len(shares[1]) and all(len(batch) == 4 for share in shares for batch in share)
    monkeypatch.setenv("WORLD_SIZE", "1")
    doubled = sorts and [(rows, 2 * size) for rows, size in sorts]
    whole = list(InOrder(range(20), 8, sorts=doubled, drop_last=False, seed=3))
    for step, batch in enumerate(whole):
        together = shares[0][step] + shares[1][step]
        assert sorted(together[: len(batch)] if sorts is None else together) == sorted(batch)


def distinct(rows, size):
    table = Dataset.from_dict({side: [row[i] for row in rows] for i, side in enumerate("ab")})
    return NoDuplicatesBatchSampler(table, size, drop_last=False, generator=torch.Generator(), seed=0)


@pytest.mark.parametrize(("count", "size", "seen"), [(5, 32, 5), (10, 16, 20), (40, 8, 80), (40, 160, 40)])
def test_rows_that_an_epoch_leaves_out_are_counted(caplog, count, size, seen):
    """Both directions of a pair are never in the same batch, and there are only as many batches as full ones hold."""
    there = [(f"a{i}", f"b{i}") for i in range(count)]
    check_batches(distinct([*there, *((b, a) for a, b in there)], size), "set")
    found = [record.message for record in caplog.records]
    assert [text.split(";")[0] for text in found] == (
        [f"set: an epoch sees {seen} of {2 * count} rows, as many rows have a text in common"]
        if seen < 2 * count
        else []
    )


@pytest.mark.parametrize("rows", [[("a", "b")] * 9, [("a", str(i)) for i in range(9)], [("a", "b")]])
def test_batches_of_single_rows_are_refused(rows):
    with pytest.raises(DataError, match="^set: no batch has two rows"):
        check_batches(distinct(rows, 8), "set")
