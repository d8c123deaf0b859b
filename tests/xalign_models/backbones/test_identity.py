"""Vectors are stored under the name of the bytes that made them, whenever the weights are exchanged."""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertModel

from xalign_models.backbones import loading
from xalign_models.backbones.loading import open_backbone
from xalign_models.errors import ModelError
from xalign_models.models.building import raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import BackboneSpec, Dtype
from xalign_models.store import open_store

TEXTS = [f"w{i} w{i * 7 % 100}" for i in range(20)]
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tiny_model: Path, workdir: Path) -> Path:
    shutil.copytree(tiny_model, workdir / "model")
    changed = {name: -weight for name, weight in load_file(workdir / "model" / WEIGHTS).items()}
    save_file(changed, workdir / "other.safetensors", metadata={"format": "pt"})
    return workdir / "model"


@pytest.mark.slow
def test_weights_exchanged_at_any_opening_store_nothing_under_another_name(folder: Path, workdir: Path) -> None:
    """Exchanged at one of the first openings of a file, with their time of modification kept; later runs are right."""
    right = raw_encoder(find_spec(str(folder)).backbone, "cpu").encode(TEXTS)
    original, moment, count = workdir / "original", -1, 0
    shutil.copy2(folder / WEIGHTS, original)

    def exchange(event: str, arguments: tuple) -> None:
        nonlocal count
        if event == "open" and "model/" in str(arguments[0]) and moment >= 0:
            count += 1
            if count == moment + 1:
                count = 1_000
                times = (folder / WEIGHTS).stat()
                shutil.copy(workdir / "other.safetensors", workdir / "next")
                os.utime(workdir / "next", ns=(times.st_atime_ns, times.st_mtime_ns))
                (workdir / "next").replace(folder / WEIGHTS)

    sys.addaudithook(exchange)
    for turn in range(20):
        shutil.copy2(original, folder / WEIGHTS)
        count, moment = 0, turn
        try:
            raw_encoder(find_spec(str(folder)).backbone, "cpu", open_store()).encode(TEXTS)
        except ModelError as error:
            assert "changed while it was in use" in str(error)
        moment = -1
        shutil.copy2(original, folder / WEIGHTS)
        found = raw_encoder(find_spec(str(folder)).backbone, "cpu", open_store()).encode(TEXTS)
        assert np.array_equal(found, right), turn


def test_weights_exchanged_after_loading_store_nothing(folder: Path, workdir: Path) -> None:
    raw = raw_encoder(find_spec(str(folder)).backbone, "cpu", open_store())
    _ = raw.modules
    shutil.copy2(workdir / "other.safetensors", folder / WEIGHTS)
    with pytest.raises(ModelError, match=r"changed while it was in use \(model\.safetensors\)") as refused:
        raw.encode(TEXTS)
    assert "\n" not in str(refused.value)


def test_every_file_that_a_load_opens_was_hashed(folder: Path) -> None:
    """An audit hook sees what is opened, by whatever library of Python."""
    opened: set[str] = set()
    on = True

    def note(event: str, arguments: tuple) -> None:
        if on and event == "open" and str(arguments[0]).startswith(f"{folder}/"):
            opened.add(str(arguments[0])[len(f"{folder}/") :])

    sys.addaudithook(note)
    raw = raw_encoder(find_spec(str(folder)).backbone, "cpu")
    raw.encode(TEXTS[:1])
    on = False
    assert {WEIGHTS, "modules.json"} <= opened
    assert opened - {"xalign.json"} <= set(find_spec_files(folder))


def find_spec_files(folder: Path) -> list[str]:
    from xalign_models.assets.digests import directory_entries

    return list(directory_entries(folder))


def test_a_thread_may_load_another_backbone_meanwhile(folder: Path, workdir: Path, monkeypatch: Any) -> None:
    spec = BackboneSpec("tiny", str(folder))
    first = loading.shared_modules(spec, "cpu")
    monkeypatch.setattr(loading.Backbone, "confirm", lambda _: loading._shared.clear())
    assert loading.shared_modules(spec, "cpu") is first


def test_threads_that_load_leave_the_type_of_new_tensors(folder: Path, workdir: Path, monkeypatch: Any) -> None:
    backbone = open_backbone(BackboneSpec("tiny", str(folder), dtype=Dtype.FLOAT16))
    backbone.modules("cpu")
    begun, second, done, make = Event(), Event(), Event(), BertModel.__init__

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if torch.get_default_dtype() == torch.float16:  # the thread that begins first ends first, if it may
            (second if begun.is_set() else begun).set()
            (done if second.is_set() else second).wait(2)

    def load() -> None:
        backbone.modules("cpu")
        done.set()

    monkeypatch.setattr(BertModel, "__init__", slow)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(load)
        assert begun.wait(20)
        threads.submit(load)
    assert torch.get_default_dtype() == torch.float32
