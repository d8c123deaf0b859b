"""What is kept of a training: fields that differ, and which checkpoint is the last whole one."""

from __future__ import annotations

import json

import pytest

from xalign_models.errors import ModelError
from xalign_models.training.records import claim, differing, json_lines, last_checkpoint, training_record


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


def test_the_last_whole_checkpoint(tmp_path):
    assert last_checkpoint(tmp_path) is None
    states = {2: '{"global_step": 2}', 10: '{"global_step": 10}', 12: '{"glob', 14: None, 16: "[]"}
    for step, content in states.items():
        (tmp_path / f"checkpoint-{step}").mkdir()
        if content:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(content)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_json_lines():
    log = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    assert [json.loads(line) for line in json_lines(log).splitlines()] == log


def test_a_log_has_no_numbers_that_json_lacks():
    entry = {"kind": "measure", "step": 0, "accuracy": 0.5, "learnt": False}
    text = json_lines([{**entry, "pearson": float("nan"), "loss": float("inf"), "gain": -float("inf")}])
    assert json.loads(text, parse_constant=pytest.fail) == entry
