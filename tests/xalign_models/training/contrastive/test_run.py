"""From a spec to a saved model: what training changes, what it must not, and what the directory says."""

from __future__ import annotations

import dataclasses
import json
import logging
from logging.handlers import QueueHandler
from queue import SimpleQueue

import numpy as np
import pytest

from xalign_models.configuration import to_mapping
from xalign_models.errors import DataError, ModelError
from xalign_models.models import saving
from xalign_models.models.building import build, load, load_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import BackboneSpec, ModelSpec, Pooling
from xalign_models.training import records, session
from xalign_models.training.contrastive import training
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.training import train

QUICK = ContrastiveConfig(pairs="own:text", samples=20, rank=4, batch_size=8, accumulation=2, max_steps=3)
KINDS = ("llama", "gemma", "bert")
INPUTS = [{"text": one, "lang": "eng-Latn"} for one in ("w1 w2", "w3", "w4 w5 w6 w7", "")]


def vectors(model):
    return model.encode(INPUTS)


@pytest.fixture
def run(workdir, text, spec):
    def go(kind="llama", config=QUICK, output="model", **fields):
        return train(spec(kind, **fields), config, workdir / output, "cpu")

    return go


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_steps_change_nothing(run, spec, kind, dtype):
    tuned = run(kind, dataclasses.replace(QUICK, max_steps=0), dtype=dtype)
    before = vectors(build(spec(kind, dtype=dtype), device="cpu"))
    np.testing.assert_allclose(vectors(load("model", device="cpu")), before, atol=1e-6)
    assert tuned.name == f"xalign/contrastive-20__{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_model_is_saved_as_it_is(run, spec, kind, monkeypatch):
    built = []
    monkeypatch.setattr(
        session, "save", lambda model, *a, save=saving.save, **k: (built.append(model), save(model, *a, **k))
    )
    run(kind)
    loaded = vectors(load("model", device="cpu"))
    np.testing.assert_allclose(loaded, vectors(built[0]), atol=1e-5)
    assert np.abs(loaded - vectors(build(spec(kind), device="cpu"))).max() > 1e-3


def test_checkpoints_of_the_same_second_are_no_reason_to_warn(run, monkeypatch):
    from transformers.utils.logging import warning_once

    said = QueueHandler(SimpleQueue())
    logger = logging.getLogger("transformers.trainer_utils")
    monkeypatch.setattr(logger, "handlers", [said])
    monkeypatch.setattr("os.path.getmtime", lambda path: 0.0)
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 1)
    warning_once.cache_clear()
    run()
    assert said.queue.empty()


@pytest.mark.slow
@pytest.mark.parametrize("pooling", [Pooling.PUBLISHED, Pooling.CLS])
def test_a_trained_inner_layer_is_read_again(workdir, text, make_model, monkeypatch, pooling):
    """Trained with one layer above it, loaded with all."""
    spec = ModelSpec(
        BackboneSpec("deep", str(make_model(workdir / "deep", num_hidden_layers=4)), layer=1, pooling=pooling)
    )
    built = []
    monkeypatch.setattr(
        session, "save", lambda model, *a, save=saving.save, **k: (built.append(model), save(model, *a, **k))
    )
    train(spec, QUICK, workdir / "model", "cpu")
    expected = vectors(built[0])
    assert np.abs(expected - vectors(build(spec, device="cpu"))).max() > 1e-3
    np.testing.assert_allclose(vectors(load("model", device="cpu")), expected, atol=1e-5)
    texts = [one["text"] for one in INPUTS]
    found = load_encoder("model", device="cpu").encode_texts(texts, [None] * len(texts))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_card_says_how_it_was_trained(run, workdir, text):
    tuned = run()
    card = json.loads((workdir / "model" / "xalign.json").read_text())
    assert card["spec"]["backbone"]["model"] == "model"  # and not where on this machine it lies
    assert card["name"] == tuned.name == find_spec("model").name == "xalign/contrastive-20__llama"
    assert card["training_datasets"] == ["OwnParallel"]
    assert card["training"]["config"] | to_mapping(QUICK) | {"dtype": "float32"} == card["training"]["config"]
    assert card["training"]["steps"] == 3
    assert card["training"]["seconds"] > 0
    assert {"torch", "peft", "sentence-transformers"} <= card["training"]["versions"].keys()
    log = [json.loads(line) for line in (workdir / "model" / records.LOG).read_text().splitlines()]
    assert [entry["step"] for entry in log if entry["kind"] == "step"] == [1, 2, 3]
    measured = [entry for entry in log if entry["kind"] == "measure"]
    assert measured[0]["step"] == 0 and {"accuracy", "chance", "held_out_loss", "mean_cosine"} <= set(measured[0])
    assert log[-1]["kind"] == "verdict" and log[-1]["text"] == card["training"]["verdict"]
    assert {"loss", "learning_rate", "epoch", "seconds"} <= log[1].keys()
    assert not [one for one in workdir.iterdir() if "training" in one.name]  # the checkpoints are gone


def test_the_backbones_dtype_is_not_changed_by_the_trainings(run):
    tuned = run(config=dataclasses.replace(QUICK, dtype="bfloat16"))
    assert tuned.backbone.dtype == "float32"
    assert vectors(load("model", device="cpu")).dtype == np.float32


def test_checkpoints_of_another_training_are_refused(run, workdir, text, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            run()
    (workdir / ".model.training" / "checkpoint-1").mkdir()
    with pytest.raises(ModelError) as error:
        run(config=dataclasses.replace(QUICK, learning_rate=1e-3, tau=0.1))
    message = str(error.value)
    assert "learning_rate (0.0005 then, 0.001 now), tau (0.05 then, 0.1 now)" in message
    assert "\n" not in message
    with pytest.raises(ModelError, match=r": backbone\."):
        run(kind="gemma")
    (text / "arb.txt").write_text((text / "arb.txt").read_text() + "w1\n")
    (text / "spa.txt").write_text((text / "spa.txt").read_text() + "w1\n")
    (text / "eng.txt").write_text((text / "eng.txt").read_text() + "w1\n")
    with pytest.raises(ModelError, match=r": text\."):
        run()


@pytest.mark.slow
def test_what_is_trained_so_already_is_left_alone(run, workdir, caplog):
    first = run()
    written = (workdir / "model" / "xalign.json").stat().st_mtime_ns
    assert run() == first
    assert (workdir / "model" / "xalign.json").stat().st_mtime_ns == written
    assert "same configuration" in caplog.text
    run(config=dataclasses.replace(QUICK, seed=1))
    assert (workdir / "model" / "xalign.json").stat().st_mtime_ns != written


def test_what_cannot_be_trained_is_refused_before_anything_is_written(run, workdir, monkeypatch):
    with pytest.raises(DataError, match="samples 41: corpus 'own' has 40 rows of arb-Arab"):
        run(config=dataclasses.replace(QUICK, samples=41))
    with pytest.raises(ModelError, match="already aligned or trained"):
        run(tuned="contrastive-100")
    with pytest.raises(ModelError, match="dtype float16"):
        run(dtype="float16")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ModelError, match="accumulation 2 cannot be shared by 3 processes"):
        run()
    assert not [one for one in workdir.iterdir() if "model" in one.name]


def test_a_second_process_writes_nothing(run, workdir, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    run(config=dataclasses.replace(QUICK, max_steps=0))
    assert not [one for one in workdir.iterdir() if "model" in one.name]


@pytest.mark.slow
def test_two_processes_take_the_cached_steps_of_one(workdir, text, make_model, launch, xalign):
    """No text comes twice in a step, and every epoch has its own order."""
    make_model(workdir / "dry", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    fields = ("samples=20", "languages=[arb-Arab]", "batch_size=8", "accumulation=2", "epochs=2", "dropout=0")
    options = [part for field in (*fields, "cached=true") for part in ("--set", field)]
    command = ("train", "contrastive", "--backbone", "dry", "--pairs", "own:text", "--device", "cpu", *options, "-o")
    launch(*command, "two")
    assert xalign(*command, "one")[0] == 0
    logs = [(workdir / name / records.LOG).read_text().splitlines() for name in ("two", "one")]
    two, one = ([entry["loss"] for entry in map(json.loads, log) if entry["kind"] == "step"] for log in logs)
    assert two == pytest.approx(one, abs=1e-3)


def test_other_prompts_are_another_training(run, workdir, caplog):
    config = dataclasses.replace(QUICK, max_steps=0)
    for prompts in ((("default", "w1 "),), (("default", "w2 "),)):
        run("bert", config, prompts=prompts)
        assert load("model", device="cpu").prompts["default"] == prompts[0][1]
    assert "same configuration" not in caplog.text
