"""Models that version 0.1 saved, under the import paths of its modules, give the vectors that they gave then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import xalign_models

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("aligned", "xalign_models.alignments.module.Aligned"),
        ("lusifer", "xalign_models.lusifer.module.Lusifer"),
        ("lira", "xalign_models.lira.module.LiRA"),
    ],
)
def test_a_saved_model_still_gives_its_vectors(name: str, module: str, workdir: Path) -> None:
    shutil.copytree(SAVED, workdir, dirs_exist_ok=True)  # the checkpoints are named relative to it
    assert module in (Path(name) / "modules.json").read_text()
    saved = json.loads(Path("vectors.json").read_text())[name]
    found = xalign_models.load(name, device="cpu").encode(saved["inputs"])
    np.testing.assert_allclose(found, saved["vectors"], atol=1e-5)
