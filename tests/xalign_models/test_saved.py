"""Saved models give the vectors that they gave when they were saved, and each of their files is opened once."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xalign_models
from xalign_models.assets import digests
from xalign_models.models.building import load_encoder

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"
TYPES = {
    "aligned": "xalign_models.alignments.module.Aligned",
    "lusifer": "xalign_models.training.lusifer.module.Lusifer",
    "lira": "xalign_models.training.lira.module.LiRA",
}
OPENED, IS_FOLDER = 0x20, 0x40000000
"""Events of Linux' inotify."""


@pytest.fixture
def saved(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XALIGN_ALLOW", "encoder,llm")
    shutil.copytree(SAVED, workdir, dirs_exist_ok=True)  # the checkpoints are named relative to it
    return workdir


@pytest.mark.parametrize(("name", "module"), TYPES.items())
def test_a_saved_model_still_gives_its_vectors(name: str, module: str, saved: Path) -> None:
    assert module in (saved / name / "modules.json").read_text()
    expected = json.loads((saved / "vectors.json").read_text())[name]
    found = xalign_models.load(name, device="cpu").encode(expected["inputs"])
    np.testing.assert_allclose(found, expected["vectors"], atol=1e-5)


def openings(folder: Path, function: Callable[[], Any]) -> Counter[str]:
    """Number of times that each file below a folder is opened, by whatever library, as the kernel counts it."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_NONBLOCK)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    watches = {libc.inotify_add_watch(events, str(path).encode(), OPENED): path for path in folders}
    try:
        function()
        content = os.read(events, 1 << 20)
    finally:
        os.close(events)
    counts: Counter[str] = Counter()
    while content:
        watch, mask, _, length = struct.unpack("iIII", content[:16])
        name = content[16 : 16 + length].rstrip(b"\0").decode()
        if not mask & IS_FOLDER:
            counts[(watches[watch] / name).relative_to(folder).as_posix()] += 1
        content = content[16 + length :]
    return counts


@pytest.mark.skipif(sys.platform != "linux", reason="openings are counted by inotify")
@pytest.mark.parametrize("name", ["aligned", "encoder", "lusifer", "lira"])
@pytest.mark.parametrize("load", [xalign_models.load, load_encoder])
def test_loading_opens_each_file_once(
    name: str, load: Callable[..., Any], saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "RACY", -(10**12))  # files of this moment count as settled

    def run() -> None:
        load(name, device="cpu")

    run()  # imports
    shutil.rmtree(Path(os.environ["XALIGN_CACHE"]) / "fingerprints")  # hash again
    counts = openings(saved / name, run)
    assert {"modules.json", "config_sentence_transformers.json"} <= counts.keys()
    assert max(counts.values()) == 1, counts
