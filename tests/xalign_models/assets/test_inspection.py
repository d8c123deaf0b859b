"""A directory is read once: later changes of its files are not seen, and the same bytes are hashed and used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from xalign_models.assets import directory_fingerprint, inspection
from xalign_models.assets.inspection import Inspected, inspected
from xalign_models.backbones.weights import state_dict
from xalign_models.errors import ModelError

TENSORS = {
    "half": torch.arange(6, dtype=torch.bfloat16).view(2, 3),
    "empty": torch.empty(0, 4),
    "number": torch.tensor(7.5),
    "whole": torch.arange(5),
}


@pytest.fixture
def folder(tmp_path: Path, workdir: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "part").mkdir(parents=True)
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "part" / "config.json").write_text("[]")
    save_file(TENSORS, folder / "model.safetensors")
    return folder


def test_the_bytes_that_are_hashed_are_those_that_are_used(folder: Path) -> None:
    files = Inspected(folder)
    fingerprint = files.fingerprint()
    expected = load_file(folder / "model.safetensors")
    assert fingerprint == directory_fingerprint(folder)
    (folder / "config.json").write_text('{"a": 2}')
    save_file({"other": torch.zeros(2)}, folder / "model.safetensors")
    assert files.json("config.json") == {"a": 1}
    tensors = state_dict(files)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert Inspected(folder).fingerprint() != fingerprint


@pytest.mark.parametrize("limit", [10, 1 << 20])
def test_long_files_are_mapped_and_their_tensors_are_the_same(folder: Path, monkeypatch, limit: int) -> None:
    monkeypatch.setattr(inspection, "IN_MEMORY", limit)
    files = Inspected(folder)
    assert (
        hashlib.sha256(files.content("model.safetensors")).digest()
        == hashlib.sha256((folder / "model.safetensors").read_bytes()).digest()
    )
    first, second = state_dict(files), state_dict(files)
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert first[name].dtype == tensor.dtype
        assert torch.equal(first[name], tensor)
    first["whole"] += 1  # the tensors of two models share no memory, and the file stays as it was
    assert torch.equal(second["whole"], TENSORS["whole"])
    assert torch.equal(load_file(folder / "model.safetensors")["whole"], TENSORS["whole"])


def test_a_copy_has_the_files_as_they_were_read_and_is_known_by_its_path(folder: Path) -> None:
    files = Inspected(folder)
    files.json("config.json")
    (folder / "config.json").write_text('{"a": 2}')
    with files.copied(lambda name: name.endswith(".safetensors")) as copy:
        assert (copy / "config.json").read_text() == '{"a": 1}'
        assert (copy / "part" / "config.json").read_text() == "[]"
        assert not (copy / "model.safetensors").exists()
        assert inspected(copy) is files
    assert not copy.exists()
    assert inspected(copy).directory == copy


def test_damage_is_named(folder: Path) -> None:
    files = Inspected(folder)
    for name in ("part/config.json", "none.json"):
        with pytest.raises(ModelError, match=name):
            files.json(name, dict)
    (folder / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(ModelError, match=r"model\.safetensors is cut off or damaged"):
        state_dict(files)


def test_settings_are_bounded_in_all_and_tokenizers_parsed_when_asked_for(folder: Path, monkeypatch) -> None:
    (folder / "part" / "config.json").write_text('{"b": 2}')
    (folder / "tokenizer.json").write_text("damaged")
    files = Inspected(folder)
    assert set(files.parsed) == {"config.json", "part/config.json"}  # the long vocabulary is left alone
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged"):
        _ = files.tokenizers
    monkeypatch.setattr(inspection, "_MOST_SETTINGS", 10)
    with pytest.raises(ModelError, match="settings are longer than 10 bytes in all"):
        _ = Inspected(folder).parsed
