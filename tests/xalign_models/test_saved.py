"""Saved models give the vectors that they gave when they were saved; an earlier form is refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import xalign_models
from xalign_models.errors import ModelError

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("aligned", "xalign_models.alignments.module.Aligned"),
        ("lusifer", "xalign_models.training.lusifer.module.Lusifer"),
        ("lira", "xalign_models.training.lira.module.LiRA"),
    ],
)
def test_a_saved_model_still_gives_its_vectors(name: str, module: str, workdir: Path) -> None:
    shutil.copytree(SAVED, workdir, dirs_exist_ok=True)  # the checkpoints are named relative to it
    assert module in (Path(name) / "modules.json").read_text()
    saved = json.loads(Path("vectors.json").read_text())[name]
    found = xalign_models.load(name, device="cpu").encode(saved["inputs"])
    np.testing.assert_allclose(found, saved["vectors"], atol=1e-5)


@pytest.mark.parametrize("name", ["lusifer", "lira"])
def test_an_earlier_form_is_refused_in_one_line(name: str, workdir: Path) -> None:
    shutil.copytree(SAVED, workdir, dirs_exist_ok=True)
    modules = Path(name, "modules.json")
    modules.write_text(modules.read_text().replace("xalign_models.training.", "xalign_models."))
    for trust in (False, True):
        with pytest.raises(ModelError, match=f"{name} was saved by an earlier version of xalign; fit or train it aga"):
            xalign_models.load(name, device="cpu", trust_remote_code=trust)
