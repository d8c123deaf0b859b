"""A batch in parts of similar length: every token is in one, and a sharded model takes one part."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from xalign_models.backbones.batching import similar_lengths

LENGTHS = torch.tensor([1, 9, 4, 1, 10])
MASK = (torch.arange(12)[None] < LENGTHS[:, None]).long()
FEATURES = {"input_ids": torch.arange(60).reshape(5, 12) * MASK, "attention_mask": MASK, "lang": [None] * 5}


def tokens(rows, part):
    return {
        int(row): ids[mask.bool()].tolist()
        for row, ids, mask in zip(rows, part["input_ids"], part["attention_mask"], strict=True)
    }


EXPECTED = tokens(range(5), FEATURES)


def test_parts_are_the_batch_without_its_padding():
    parts = list(similar_lengths(FEATURES, nn.Linear(1, 1)))
    assert {row: ids for rows, part in parts for row, ids in tokens(rows, part).items()} == EXPECTED
    assert [part["input_ids"].shape for _, part in parts] == [(2, 10), (1, 4), (2, 1)]


def test_a_sharded_model_takes_one_part_whatever_the_lengths(mesh):
    """A process with other texts would otherwise call it more or fewer times, and wait for the others for ever."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    fully_shard(model[0], mesh=mesh)
    ((rows, part),) = similar_lengths(FEATURES, model)
    assert tokens(rows, part) == EXPECTED
    assert part["input_ids"].shape == (5, 10)
