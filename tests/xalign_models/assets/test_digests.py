"""A fingerprint follows content: through links, and past times that a copy kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from xalign_models.assets import digests
from xalign_models.assets.digests import directory_fingerprint


@pytest.fixture
def model(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(digests, "RACY", -(10**12))  # files of this moment count as settled
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"a" * 100)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    return tmp_path / "model"


def test_the_same_size_and_modification_time_hide_no_change(model: Path, tmp_path: Path) -> None:
    before = directory_fingerprint(model)
    weights = model / "model.safetensors"
    times = weights.stat().st_atime_ns, weights.stat().st_mtime_ns
    other = tmp_path / "other"
    other.write_bytes(b"b" * 100)
    os.utime(other, ns=times)
    shutil.copy2(other, weights)  # cp -p
    assert weights.stat().st_mtime_ns == times[1]
    assert directory_fingerprint(model) != before


def test_a_file_behind_a_link_counts(model: Path, tmp_path: Path) -> None:
    plain = directory_fingerprint(model)
    for name in ("model.safetensors", "1_Pooling"):
        shutil.move(model / name, tmp_path / name)
        (model / name).symlink_to(tmp_path / name)
    assert directory_fingerprint(model) == plain
    (tmp_path / "1_Pooling" / "config.json").write_text('{"a": 1}')
    assert directory_fingerprint(model) != plain


def test_a_link_back_ends(model: Path) -> None:
    (model / "again").symlink_to(model)
    assert directory_fingerprint(model)


def test_a_young_file_is_read_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    original = digests.sha256_file
    monkeypatch.setattr(digests, "sha256_file", lambda path: reads.append(path) or original(path))
    directory_fingerprint(model)
    directory_fingerprint(model)
    assert len(reads) == 2
    monkeypatch.setattr(digests, "RACY", 10**12)
    directory_fingerprint(model)
    assert len(reads) == 4


@pytest.mark.parametrize("damage", ["[]", "{", '{"model.safetensors": [1]}', '{"model.safetensors": "x"}', "[" * 9999])
def test_a_damaged_record_of_hashes_is_written_anew(model: Path, cache: Path, damage: str) -> None:
    before = directory_fingerprint(model)
    (record,) = (cache / "fingerprints").iterdir()
    record.write_text(damage)
    assert directory_fingerprint(model) == before
    assert record.read_text() != damage


def test_a_cache_that_cannot_be_written_is_no_error(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = directory_fingerprint(model)
    shutil.rmtree(cache)
    cache.write_text("a file where the cache should be")
    assert directory_fingerprint(model) == before


@pytest.mark.parametrize(
    "name",
    [
        ".w.safetensors",
        ".hidden/model.safetensors",
        "onnx/.model.onnx_data",
        f"onnx/{'w' * 150}",
        "model.weights",
        "MODEL.SAFETENSORS",
        "a/b/c/weights.pt",
        "README.safetensors",
        ".GIT/w",
        "zwölf.model",
        "vocab",
        "merges.tsv",
    ],
)
def test_every_file_counts(model: Path, name: str) -> None:
    before = directory_fingerprint(model)
    (model / name).parent.mkdir(parents=True, exist_ok=True)
    (model / name).write_bytes(b"a")
    middle = directory_fingerprint(model)
    (model / name).write_bytes(b"b")
    assert len({before, middle, directory_fingerprint(model)}) == 3


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "picture.PNG", ".git/config", ".cache/x", "xalign.json"])
def test_documentation_does_not_count(model: Path, name: str) -> None:
    before = directory_fingerprint(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("a")
    assert directory_fingerprint(model) == before


def test_a_name_with_a_line_end_imitates_no_other_files() -> None:
    first, second = "1" * 64, "2" * 64
    assert digests.combine({"a": first, "b": second}) != digests.combine({f"a\n{second}  b": first})
