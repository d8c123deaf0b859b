"""Both stages by two processes: every weight that is to be trained is, and sharding changes nothing."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
import torch

from tests.xalign_models.training.lusifer.conftest import WORDS
from xalign_models.models.building import load
from xalign_models.training.lusifer import build
from xalign_models.training.lusifer.config import load_config

FSDP = files("xalign_models.training.lusifer") / "accelerate" / "fsdp.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_two_processes_train_one_model(launch, xalign, workdir, english, write_config, make_bert, number):
    """Each reads half of a step's rows, one of them writes; so it is when the shipped FSDP shards the model."""
    dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # drawn in parts without FSDP
    encoder = make_bert(workdir / "dry", WORDS, initializer_range=0.3, **dry)
    name = write_config(encoder=str(encoder), stages={number: {"start": None, "max_steps": 3, "held_out": 0.1}})
    command = ("train", "lusifer", "--config", name, "--stage", number, "--device", "cpu", "-o")
    label = {1: "tiny-one", 2: "tiny-two"}[number]
    assert launch(*command, "model") == f"xalign/{label}__tiny: model\n"
    log = [json.loads(line) for line in (workdir / "model" / "training_log.jsonl").read_text().splitlines()]
    assert [entry["rows"] for entry in log if entry["kind"] == "step"] == [4, 4, 4]  # of 8
    config = load_config([name])
    before, _ = build.begin(config)
    build.prepare(before, config, config.stage(number))
    after = dict(load("model", device="cpu").named_parameters())
    trained = {name: one for name, one in before.named_parameters() if one.requires_grad}
    assert {name.split(".")[1] for name in trained} == set(config.stage(number).train)
    assert not [name for name, one in trained.items() if torch.equal(one, after[name])]
    launch(*command, "shards", sharded=FSDP)
    assert xalign(*command, "one")[0] == 0
    two, sharded, one = (
        [
            {name: value for name, value in entry.items() if name not in ("kind", "seconds", "epoch")}
            for entry in map(json.loads, (workdir / folder / "training_log.jsonl").read_text().splitlines())
            if entry["kind"] == "measure"
        ]
        for folder in ("model", "shards", "one")
    )
    assert len(two) > 1
    for entry, expected in [*zip(sharded, two, strict=True), (one[0], sharded[0])]:  # then other words are masked
        assert entry == pytest.approx(expected, abs=1e-4)
    shards = dict(load("shards", device="cpu").named_parameters())
    for name in trained:
        torch.testing.assert_close(shards[name], after[name], rtol=0, atol=1e-5)
    assert not [one for one in workdir.iterdir() if one.name.endswith(".training")]


@pytest.mark.slow
@pytest.mark.parametrize("teacher", [None, "teacher"])
def test_steps_of_two_processes_are_those_of_one(launch, xalign, workdir, english, write_config, make_bert, teacher):
    """In every epoch, of training sets that no batch divides, and with the contrast to all texts of the step."""
    dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = make_bert(workdir / "dry", WORDS, initializer_range=0.3, **dry)
    data = [{"source": "multi30k", "samples": 22}, {"source": "squad-nqg", "samples": 10}]
    fields = {"start": None, "data": data, "epochs": 2, "held_out": 0.0, "train": ["connector"]}
    name = write_config("first.yaml", encoder=str(encoder), stages={2: {**fields, "max_steps": 1}})
    if teacher:
        assert xalign("train", "lusifer", "--config", name, "--stage", 2, "--device", "cpu", "-o", teacher)[0] == 0
    name = write_config(encoder=str(encoder), seed=1, stages={2: {**fields, "teacher": teacher}})
    command = ("train", "lusifer", "--config", name, "--stage", 2, "--device", "cpu", "-o")
    launch(*command, "two")
    assert xalign(*command, "one")[0] == 0
    two, one = (
        list(map(json.loads, (workdir / folder / "training_log.jsonl").read_text().splitlines()))
        for folder in ("two", "one")
    )
    assert [entry["rows"] * 2 for entry in two] == [entry["rows"] for entry in one]
    assert {entry["rows"] for entry in one} == ({8} if teacher else {8, 6, 2})
    assert [entry["loss"] for entry in two] == pytest.approx([entry["loss"] for entry in one], abs=1e-3)
