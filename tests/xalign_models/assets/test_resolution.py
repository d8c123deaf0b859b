"""What a model's name means, and what identifies its weights."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from xalign_models import assets
from xalign_models.assets import digests
from xalign_models.assets.catalogue import Asset
from xalign_models.errors import AssetError, LicenceError, ModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def checkpoint(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "org" / "model"
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(bytes(100))
    return path


def test_an_asset_name_comes_before_a_directory_and_is_installed(
    toy: Asset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    resolved = assets.resolve("toy")
    assert resolved == assets.ResolvedModel(str(assets.where("toy")), None, assets.fingerprint("toy"), "package")


def test_an_asset_that_was_changed_on_disk_has_another_fingerprint(toy: Asset) -> None:
    path = Path(assets.resolve("toy").path_or_id)
    before = assets.resolve("toy").fingerprint
    (path / "config.json").write_text('{"num_hidden_layers": 3}')
    assert assets.resolve("toy").fingerprint != before


def test_a_directory_comes_before_a_hub_id(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent.parent)
    resolved = assets.resolve("org/model")
    assert (resolved.source, resolved.path_or_id) == ("local", str(checkpoint.resolve()))


def test_a_copy_has_the_same_fingerprint_and_a_changed_weight_another(checkpoint: Path, tmp_path: Path) -> None:
    before = assets.resolve(str(checkpoint)).fingerprint
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "README.md").write_text("not part of the model")
    assert assets.resolve(str(copy)).fingerprint == before
    (copy / "model.safetensors").write_bytes(bytes(99) + b"\1")
    os.utime(copy / "model.safetensors", ns=(1, 1))
    assert assets.resolve(str(copy)).fingerprint != before
    (checkpoint / "config.json").rename(checkpoint / "other.json")
    assert assets.resolve(str(checkpoint)).fingerprint != before


def test_unchanged_files_are_read_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "RACY", -(10**12))  # files of this moment count as settled
    before = assets.resolve(str(checkpoint)).fingerprint
    monkeypatch.setattr(digests, "sha256_file", lambda _path: pytest.fail("read again"))
    assert assets.resolve(str(checkpoint)).fingerprint == before


def test_a_damaged_record_of_hashes_is_ignored(checkpoint: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "RACY", -(10**12))  # files of this moment count as settled
    before = assets.resolve(str(checkpoint)).fingerprint
    for record in (cache / "fingerprints").iterdir():
        record.write_text("{")
    assert assets.resolve(str(checkpoint)).fingerprint == before


def test_a_hub_id_is_pinned_to_its_commit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def model_info(_self: object, name: str, *, revision: str, timeout: float) -> SimpleNamespace:
        asked.append((name, revision))
        return SimpleNamespace(sha=COMMIT)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    expected = assets.ResolvedModel("org/name", COMMIT, f"org/name@{COMMIT}", "hub")
    assert assets.resolve("org/name") == assets.resolve("org/name", "v1") == expected
    assert asked == [("org/name", "main"), ("org/name", "v1")]
    assert assets.resolve("org/name", COMMIT) == expected
    assert len(asked) == 2  # a commit needs no look-up


def test_an_unreachable_hub_falls_back_on_its_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def model_info(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nsecond line")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *_, **__: f"/hub/snapshots/{COMMIT}/config.json"
    )
    assert assets.resolve("org/name").revision == COMMIT
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)
    assert assets.hub_is_away()
    with pytest.raises(
        AssetError, match=r"cannot be reached \(no route second line\) and org/name is not in its local cache"
    ):
        assets.resolve("org/name")


@pytest.mark.parametrize(("status", "away"), [(403, False), (401, False), (429, True), (503, True)])
def test_a_refusal_of_one_model_does_not_hide_the_hub(
    cache: Path, monkeypatch: pytest.MonkeyPatch, status: int, away: bool
) -> None:
    def model_info(_self: object, name: str, **_: object) -> SimpleNamespace:
        if name == "org/refused":
            response: Any = SimpleNamespace(headers={}, request=None, status_code=status)
            raise HfHubHTTPError(f"{status} for you", response=response)
        return SimpleNamespace(sha=COMMIT)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    with pytest.raises(AssetError, match=f"{status} for you.* org/refused is not in its local cache"):
        assets.resolve("org/refused")
    assert assets.hub_is_away() == away
    if not away:
        assert assets.resolve("org/other").revision == COMMIT
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *_, **__: f"/hub/snapshots/{COMMIT}/config.json"
    )
    assert assets.resolve("org/refused").revision == COMMIT


def test_a_hub_that_is_away_is_asked_once_for_all_names(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def model_info(_self: object, name: str, **_: object) -> None:
        asked.append(name)
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    for name in ("org/a", "org/b", "org/c"):
        with pytest.raises(AssetError, match="cannot be reached"):
            assets.resolve(name)
    assert asked == ["org/a"]


def test_a_mirror_is_used_before_the_hub(cache: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("the hub is asked"))
    monkeypatch.setenv("XALIGN_MODELS", str(checkpoint.parents[1]))
    found = assets.resolve("org/model", "main")
    assert found == assets.resolve("org/model", COMMIT)
    assert found == dataclasses.replace(assets.resolve(str(checkpoint)), source="local")
    monkeypatch.setenv("XALIGN_MODELS", str(checkpoint.parents[1] / "nowhere"))
    with pytest.raises(AssetError, match="XALIGN_MODELS=.*is not a directory"):
        assets.resolve("org/model")


def test_an_adapter_is_another_model_on_another_base(checkpoint: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(checkpoint)}))
    with pytest.raises(ModelError, match="A file names .*and you have not"):
        assets.resolve(str(adapter))
    assets.resolve(str(checkpoint))
    before = assets.resolve(str(adapter)).fingerprint
    assert assets.resolve(str(adapter)).fingerprint == before
    (checkpoint / "config.json").write_text('{"other": 1}')
    assert assets.resolve(str(adapter)).fingerprint != before


def test_what_cannot_be_resolved_says_why(toy: Asset, checkpoint: Path, register: Callable[..., Asset]) -> None:
    for name in ("nothing", "./aligned-typo", "../model", "a/b/c", "my--x/b..c"):
        with pytest.raises(AssetError, match=rf"no model '{name}': give an asset \(toy\), a directory, or a hub id"):
            assets.resolve(name)
    for name in ("toy", str(checkpoint)):
        with pytest.raises(AssetError, match="has no revision 'main'"):
            assets.resolve(name, "main")
    register(dataclasses.replace(toy, needs_licence_flag="gemma"))
    with pytest.raises(LicenceError, match="--accept-license gemma"):
        assets.resolve("toy")
    register(dataclasses.replace(toy, kind="corpus"))
    with pytest.raises(AssetError, match="is a corpus"):
        assets.resolve("toy")


def test_a_data_set_of_a_hub_that_is_away_is_not_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def dataset_info(_self: object, name: str, **_: object) -> None:
        asked.append(name)
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    begun = time.monotonic()
    for name in ("org/a", "org/b"):
        with pytest.raises(OSError, match=f"Couldn't reach '{name}'"), assets.hub_or_cache(name):
            datasets.load_dataset(name, split="test")
    assert time.monotonic() - begun < 5  # by themselves they try for 23 s each
    assert asked == ["org/a"]
    assert not huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    "failure",
    [
        datasets.exceptions.DatasetGenerationError("connection lost"),
        datasets.exceptions.DatasetNotFoundError("gone"),
        HfHubHTTPError.__mro__[1]("timed out"),  # of httpx or httpx2, which the hub's library uses
        OSError("no route"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_download_that_fails_in_any_way_is_an_error_of_the_system(monkeypatch, failure):
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    with pytest.raises(OSError, match=str(failure)), assets.hub_or_cache("org/a"):
        raise failure


def test_a_data_set_of_a_hub_that_answers_is_loaded_from_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    response: Any = SimpleNamespace(headers={}, request=None, status_code=404)

    def dataset_info(_self: object, name: str, **_: object) -> None:
        if name == "org/missing":
            raise RepositoryNotFoundError("no such repository", response=response)
        validate_repo_id(name)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for name in ("org/a", "org/missing", "no/such/name"):  # what is wrong with a name, loading says
        with assets.hub_or_cache(name):
            assert not huggingface_hub.constants.HF_HUB_OFFLINE
    assert not assets.hub_is_away()
