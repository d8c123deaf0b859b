"""The frame of a training: one process at a time trains a model."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_models.training.session import train_once


def test_a_second_training_of_the_same_model_waits_and_finds_it_done(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output, begun, go_on, trainings = tmp_path / "m", threading.Event(), threading.Event(), list[Path]()

    def fit(model: SentenceTransformer, folder: Path) -> list[dict[str, object]]:
        trainings.append(folder)
        begun.set()
        assert go_on.wait(60)
        return []

    def train() -> None:
        spec = ModelSpec(BackboneSpec("tiny", str(output), tuned="taught"))
        train_once(spec, {"lr": 1}, output, (), lambda: SentenceTransformer(str(tiny_model), device="cpu"), fit)

    first, second = threading.Thread(target=train), threading.Thread(target=train)
    first.start()
    assert begun.wait(60)
    second.start()
    while not any("Another process is training" in message for message in caplog.messages):
        assert second.is_alive()
        second.join(0.01)
    go_on.set()
    first.join(60)
    second.join(60)
    assert len(trainings) == 1 and (output / "modules.json").is_file()
    assert any("exists with the same configuration" in message for message in caplog.messages)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".m")) == []
