"""What is kept of a training: fields that differ, and which checkpoint is the last whole one."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from xalign_models.errors import ModelError
from xalign_models.training.records import WEIGHTS, claim, differing, json_lines, last_checkpoint, training_record


def test_differing_fields_are_named_with_both_values_unless_they_are_fingerprints():
    then = {"lr": 1, "stage": {"tau": 0.05, "data": ["a"]}, "text": "0" * 64, "hub": f"org/name@{'a' * 40}", "x": 1}
    now = {"lr": 1, "stage": {"tau": 0.1, "data": ["a", "b"]}, "text": "1" * 64, "hub": f"org/name@{'b' * 40}", "y": 2}
    assert differing(then, now) == [
        "hub",
        "stage.data (['a'] then, ['a', 'b'] now)",
        "stage.tau (0.05 then, 0.1 now)",
        "text",
        "x (1 then, None now)",
        "y (None then, 2 now)",
    ]
    assert differing(then, then) == []


def test_a_folder_is_claimed_once(tmp_path):
    folder = tmp_path / "work"
    claim(folder, {"lr": 1}, tmp_path / "model")
    (folder / "checkpoint-1").mkdir()
    claim(folder, {"lr": 1}, tmp_path / "model")
    assert (folder / "checkpoint-1").is_dir()
    with pytest.raises(ModelError, match=r"another training for .*model: lr \(1 then, 2 now\)"):
        claim(folder, {"lr": 2}, tmp_path / "model")
    (folder / "checkpoint-1").rmdir()  # it failed before the first one
    claim(folder, {"lr": 2}, tmp_path / "model")
    (folder / "checkpoint-1").mkdir()
    with pytest.raises(ModelError, match=r"lr \(2 then, 1 now\)"):
        claim(folder, {"lr": 1}, tmp_path / "model")
    (folder / "config.json").write_text("{")  # damage, as it is written whole or not at all: work is not thrown away
    with pytest.raises(ModelError, match=r"another training for .*model: .*config.json is damaged"):
        claim(folder, {"lr": 2}, tmp_path / "model")
    (folder / "checkpoint-1").rmdir()
    claim(folder, {"lr": 2}, tmp_path / "model")
    (folder / "config.json").unlink()  # killed before it was written: nothing was begun
    (folder / "left").mkdir()
    claim(folder, {"lr": 3}, tmp_path / "model")
    assert not (folder / "left").exists()


@pytest.mark.parametrize("card", ["[]", "{", '{"training": 5}', '{"training": []}', "[" * 100_000])
def test_a_damaged_card_is_of_no_training(tmp_path, card):
    (tmp_path / "xalign.json").write_text(card)
    assert training_record(tmp_path) == {}


def test_the_record_is_what_the_card_says(tmp_path):
    assert training_record(tmp_path) == {}
    (tmp_path / "xalign.json").write_text(json.dumps({"training": {"config": {"lr": 1}}}))
    assert training_record(tmp_path) == {"config": {"lr": 1}}


@pytest.fixture
def write_checkpoint(tmp_path):
    """Writes a checkpoint as the trainer does; files go over its own."""

    def write(step, state=None, random=("rng_state.pth",), optimiser="optimizer.pt"):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file({"weight": torch.zeros(2)}, folder / WEIGHTS)
        for name in (optimiser, "scheduler.pt", *random, "state.pt"):
            torch.save({"value": torch.zeros(9)}, folder / name)
        (folder / "trainer_state.json").write_text(state or json.dumps({"global_step": step}))
        return folder

    return write


def test_the_last_whole_checkpoint(tmp_path, write_checkpoint):
    assert last_checkpoint(tmp_path) is None
    for step, state in {2: None, 10: None, 12: '{"glob', 16: "[]"}.items():
        write_checkpoint(step, state)
    (tmp_path / "checkpoint-14").mkdir()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize("harm", ["removed", "cut off", "empty"])
@pytest.mark.parametrize("name", [WEIGHTS, "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_with_a_damaged_file_gives_way_to_the_one_before(tmp_path, write_checkpoint, caplog, name, harm):
    before, damaged = write_checkpoint(2), write_checkpoint(4)
    assert last_checkpoint(tmp_path) == damaged
    content = (damaged / name).read_bytes()
    (damaged / name).unlink()
    if harm != "removed":
        (damaged / name).write_bytes(content[: len(content) // 2 if harm == "cut off" else 0])
    assert last_checkpoint(tmp_path) == before
    assert "checkpoint-4 is incomplete; resuming from an earlier checkpoint" in caplog.text


def test_checkpoints_of_several_processes_are_whole_too(tmp_path, write_checkpoint):
    """Each process has its own random state; sharding writes the optimiser under another name, perhaps in parts."""
    for step, optimiser in ((2, "optimizer.pt"), (4, "optimizer.bin")):
        folder = write_checkpoint(step, random=("rng_state_0.pth", "rng_state_1.pth"), optimiser=optimiser)
        assert last_checkpoint(tmp_path) == folder
    (folder / "optimizer.bin").unlink()
    (folder / "optimizer_0").mkdir()
    assert last_checkpoint(tmp_path) == folder
    (folder / "rng_state_1.pth").write_bytes(b"PK")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


def test_json_lines():
    log = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    assert [json.loads(line) for line in json_lines(log).splitlines()] == log


def test_a_log_has_no_numbers_that_json_lacks():
    entry = {"kind": "measure", "step": 0, "accuracy": 0.5, "learnt": False}
    text = json_lines([{**entry, "pearson": float("nan"), "loss": float("inf"), "gain": -float("inf")}])
    assert json.loads(text, parse_constant=pytest.fail) == entry
