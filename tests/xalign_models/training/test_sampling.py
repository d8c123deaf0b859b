"""The order of training rows: by seed and epoch alone, every row seen, the same count for every process."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler, ProportionalBatchSampler
from torch.utils.data import ConcatDataset

from xalign_models.errors import DataError
from xalign_models.training.session import InOrder, InTurns, check_batches


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
        [f"set: an epoch sees {seen} of {2 * count} rows, because many share a text"] if seen < 2 * count else []
    )


@pytest.mark.parametrize("rows", [[("a", "b")] * 9, [("a", str(i)) for i in range(9)], [("a", "b")]])
def test_batches_of_single_rows_are_refused(rows):
    with pytest.raises(DataError, match="^set: no batch has two rows"):
        check_batches(distinct(rows, 8), "set")


def several(kind, counts, size, **options):
    sets = [distinct([(f"a{n} {i}", f"b{n} {i}") for i in range(count)], size) for n, count in enumerate(counts)]
    generator = torch.Generator()
    return kind(ConcatDataset([one.dataset for one in sets]), sets, generator=generator, seed=0, **options)


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    size=st.integers(2, 9),
    processes=st.integers(1, 3),
    whole=st.booleans(),
)
def test_processes_share_the_batches_of_one(counts, size, processes, whole):
    """As many for each; equal shares of a batch of one set, or whole batches in turn; only remainders are left out."""
    expected = list(several(ProportionalBatchSampler, counts, size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", str(processes))
        sampler = several(InTurns, counts, size, whole=whole)
        shards = [BatchSamplerShard(sampler, processes, rank, even_batches=False) for rank in range(processes)]
        shares = [list(shard) for shard in shards]
        assert len({len(shard) for shard in shards}) == len({len(share) for share in shares}) == 1
        if whole:
            dealt = [batch for step in zip(*shares, strict=True) for batch in step]
            assert dealt == expected[: len(expected) // processes * processes]
            assert len(sampler) == len(dealt)
            return
        steps = list(zip(*shares, strict=True))
        assert all(len({len(part) for part in step}) == 1 for step in steps)
        cut = [batch[: len(batch) // processes * processes] for batch in expected]
        assert [sorted(chain(*step)) for step in steps] == [sorted(batch) for batch in cut if batch]


@pytest.mark.parametrize("kind", [InOrder, InTurns])
def test_every_epoch_has_its_own_order_in_every_process(monkeypatch, kind):
    """Accelerate hands the epoch on to few places."""
    from torch.utils.data import DataLoader

    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = InOrder(range(20), 4, drop_last=False, seed=3) if kind is InOrder else several(InTurns, [20], 4)
    loader = prepare_data_loader(
        DataLoader(range(20), batch_sampler=sampler), num_processes=2, process_index=1, even_batches=False
    )
    orders = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        orders.append([batch.tolist() for batch in loader])
    assert orders[0] != orders[1]
