"""Both stages from a configuration to a saved model: what is trained, what is written, and what is refused."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.xalign_models.training.lusifer.conftest import WORDS, write_llm
from xalign_models.errors import AssetError, DataError, ModelError
from xalign_models.models import saving
from xalign_models.models.building import load, load_encoder
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import directory_of, find_spec
from xalign_models.training import session
from xalign_models.training.lusifer import build, run, stages
from xalign_models.training.lusifer.config import load_config
from xalign_models.training.records import last_checkpoint
from xalign_models.training.trainer import Trainer

TEXTS = ["w1", "w2 w3 w4 w5 w6 w7", "w8 w9"]


@pytest.fixture
def train(workdir, english, write_config):
    """Trains a stage of a tiny configuration; fields go over it."""

    def go(number, output=None, start=None, **fields):
        config = load_config([write_config(**fields)])
        return run.train(config, number, output and workdir / output, start and workdir / start, "cpu")

    return go


@pytest.fixture
def built(monkeypatch):
    """The models that trainings begin with, each with copies of its weights, in order."""
    found = []

    def prepare(model, config, stage, prepare=build.prepare):
        prepare(model, config, stage)
        found.append((model, {name: one.detach().clone() for name, one in model.named_parameters()}))

    monkeypatch.setattr(build, "prepare", prepare)
    return found


def read_log(directory):
    return [json.loads(line) for line in (directory / "training_log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_stages_make_a_model(train, workdir):
    spec, first = train(1)
    assert spec.name == "xalign/tiny-one__tiny"
    assert first == directory_of("tiny-one__tiny")
    tuned, second = train(2)
    assert tuned.name == find_spec("xalign/tiny-two__tiny").name == "xalign/tiny-two__tiny"
    model = load("xalign/tiny-two__tiny", device="cpu")
    vectors = model.encode(TEXTS)
    assert vectors.shape == (3, 24)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.abs(vectors - load(str(first), device="cpu").encode(TEXTS)).max() > 1e-3
    card = json.loads((second / "xalign.json").read_text())
    assert card["training_datasets"] == ["Multi30k", "SQuAD"]
    assert card["training"]["config"]["stage"]["start"] == "tiny-one"
    log = read_log(second)
    assert [entry["step"] for entry in log if entry["kind"] == "step"] == list(range(1, log[-1]["step"] + 1))
    assert {"loss", "grad_norm", "learning_rate", "epoch", "rows", "tokens", "seconds"} <= log[0].keys()
    assert not [one for one in second.parent.iterdir() if one.name.startswith(".")]
    encoder = load_encoder("tiny-two__tiny", device="cpu")
    np.testing.assert_allclose(encoder.encode_texts(TEXTS, [None] * 3), vectors, atol=1e-5)


@pytest.mark.parametrize(
    ("number", "trained"),
    [
        (1, ["connector"]),
        (1, ["encoder", "connector"]),
        (2, ["connector"]),
        (2, ["connector", "llm"]),
        (2, ["encoder", "connector", "llm"]),
    ],
)
def test_frozen_weights_stay_to_the_bit(train, built, number, trained):
    train(number, stages={number: {"train": trained, "start": None, "max_steps": 2}})
    ((model, before),) = built
    moved = {name for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert moved == {name for name, one in model.named_parameters() if one.requires_grad}
    parts = {"connector": ".connector.", "encoder": ".encoder.", "llm": ".llm."}
    assert {part for part, key in parts.items() if any(key in name for name in moved)} == set(trained)


@pytest.mark.parametrize(("number", "slow"), [(1, "encoder"), (1, "connector"), (2, "connector"), (2, "llm")])
def test_a_part_has_its_own_learning_rate(train, built, number, slow):
    train(number, stages={number: {"start": None, "max_steps": 2, "learning_rates": {slow: 1e-9}}})
    ((model, before),) = built
    with torch.no_grad():
        moved = {name: float((one - before[name]).abs().max()) for name, one in model.named_parameters()}
    trained = {name for name, one in model.named_parameters() if one.requires_grad}
    assert 0 < max(moved[name] for name in trained if f".{slow}." in name) < 1e-7
    assert max(moved[name] for name in trained if f".{slow}." not in name) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_activations_that_are_computed_again_change_nothing(train, built, number):
    for again in (False, True):
        fields = {"start": None, "max_steps": 2, "gradient_checkpointing": again}
        train(number, f"again-{again}", stages={number: fields})
    (kept, _), (computed, before) = built
    assert [model[0].llm.is_activation_checkpointing for model in (kept, computed)] == [False, True]
    for (name, one), other in zip(kept.named_parameters(), computed.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: name + text)
    assert any(not torch.equal(one, before[name]) for name, one in computed.named_parameters())


@pytest.mark.parametrize("trained", [["connector"], ["connector", "llm"], ["encoder", "connector", "llm"]])
def test_a_frozen_encoder_keeps_no_activations(workdir, write_config, trained):
    config = load_config([write_config(stages={2: {"train": trained, "gradient_checkpointing": True}})])
    model, _ = build.begin(config)
    build.prepare(model, config, config.stage(2))
    encoder, llm = model.train()[0].encoder, model[0].llm
    states = encoder(encoder.preprocess(["w1 w2 w3"]))["token_embeddings"]
    assert states.requires_grad == encoder.model.is_activation_checkpointing == ("encoder" in trained)
    assert llm.is_activation_checkpointing


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_trained_model_is_saved_as_it_is(train, built, family, workdir):
    train(
        2,
        "model",
        family=family,
        stages={2: {"start": None, "max_steps": 2}},
        parameters={"llm": {"llama": 1344, "gemma3_text": 1344}[family]},
    )
    ((model, _),) = built
    np.testing.assert_allclose(load("model", device="cpu").encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    moved = (workdir / "model").rename(workdir / "elsewhere")
    np.testing.assert_allclose(load(str(moved), device="cpu").encode(TEXTS), model.encode(TEXTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_a_model_put_together_from_its_checkpoint_is_the_trained_one(train, built, number, monkeypatch):
    """As it is after several processes."""
    monkeypatch.setattr(session, "is_sharded", lambda model: True)
    _, directory = train(number, stages={number: {"start": None, "max_steps": 2}})
    (trained, before), _ = built
    np.testing.assert_allclose(load(str(directory), device="cpu").encode(TEXTS), trained.encode(TEXTS), atol=1e-6)
    assert any(not torch.equal(one, before[name]) for name, one in trained.named_parameters())


@pytest.fixture
def roomy(workdir, make_bert):
    """Fields of a model that is a little larger, its initial weights as small as real ones."""
    llm = write_llm(workdir / "roomy", hidden_size=64, head_dim=32, intermediate_size=128, initializer_range=0.02)
    encoder = make_bert(workdir / "reader", WORDS, hidden_size=32, intermediate_size=64, initializer_range=0.1)
    counts = {
        "encoder": 2 * 8 * (4 * 64 + 2 * 96),
        "connector": 32 * 32 + 32 + 32 * 64 + 64 + 64,
        "llm": 2 * 8 * (2 * 128 + 2 * 96 + 3 * 192),
    }
    return {"encoder": str(encoder), "llm": str(llm), "rank": 8, "alpha": 16, "parameters": counts}


@pytest.mark.slow
def test_eight_pairs_are_learnt_by_heart(train, roomy):
    data = {"data": [{"source": "squad-nqg", "samples": 8}], "max_steps": 40, "learning_rate": 3e-3}
    _, directory = train(2, stages={2: {"start": None, **data}}, **roomy)
    log = read_log(directory)
    assert log[0]["loss"] > 1.5
    assert log[-1]["loss"] < 0.05
    rows = stages.read(load_config(["tiny.yaml"]), 2, "cpu").rows["squad-nqg"]
    assert len(rows) == 8
    model = load(str(directory), device="cpu")
    scores = model.encode([row[0] for row in rows]) @ model.encode([row[1] for row in rows]).T
    assert scores.argmax(axis=1).tolist() == list(range(8))


@pytest.mark.slow
def test_stage_1_learns_to_write(train):
    data = {"data": [{"source": "squad-nqg", "samples": 8, "task": "completion"}], "max_steps": 40}
    _, directory = train(1, stages={1: data})
    log = read_log(directory)
    assert log[-1]["loss"] < 0.9 * log[0]["loss"]


class Killed(Exception):  # noqa: N818
    """Stands in for a signal."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_killed_and_started_again_it_ends_as_if_never_stopped(train, built, monkeypatch, number):
    """In the second epoch, masks and dropout and all: every weight is the same to the bit."""
    fields = {"dropout": 0.3, "stages": {number: {"start": None, "epochs": 2, "mini_batch": 4}}}
    _, whole = train(number, "whole", **fields)
    compute = Trainer.compute_loss

    def until(trainer, *arguments, **options):
        if trainer.state.global_step == 7:
            raise Killed
        return compute(trainer, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "compute_loss", until)
        with pytest.raises(Killed):
            train(number, "again", **fields)
    _, again = train(number, "again", **fields)
    log, log_again = read_log(whole), read_log(again)
    assert log[6]["epoch"] > 1
    assert [{**entry, "seconds": 0} for entry in log_again] == [{**entry, "seconds": 0} for entry in log]
    first, last = built[0][0], built[-1][0]
    for (name, one), other in zip(first.named_parameters(), last.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.slow
def test_killed_after_the_last_checkpoint_it_still_says_what_was_learnt(train, monkeypatch):
    fields = {"stages": {1: {"held_out": 0.2, "measure_steps": 2}}}
    _, whole = train(1, "whole", **fields)
    run = Trainer.run

    def then_killed(trainer):
        run(trainer)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", then_killed)
        with pytest.raises(Killed):
            train(1, "again", **fields)
    _, again = train(1, "again", **fields)
    log, log_again = read_log(whole), read_log(again)
    assert log[-1]["kind"] == "verdict"
    assert [{**entry, "seconds": 0} for entry in log_again] == [{**entry, "seconds": 0} for entry in log]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_it_and_the_last_good_checkpoint_stays(train, monkeypatch, workdir):
    theirs = Trainer.__mro__[1]

    def broken(trainer, *arguments, compute=theirs.compute_loss, **options):
        loss = compute(trainer, *arguments, **options)
        return loss * float("nan") if trainer.state.global_step == 3 else loss

    with monkeypatch.context() as patch:
        patch.setattr(theirs, "compute_loss", broken)
        with pytest.raises(ModelError, match=r"not finite in step 4; lower learning_rate.*kept in .*checkpoint-2\."):
            train(1, "model")
    kept = last_checkpoint(workdir / ".model.training")
    assert kept is not None
    assert kept.name == "checkpoint-2"
    assert not (workdir / "model").exists()
    train(1, "model")
    assert [entry["step"] for entry in read_log(workdir / "model")][:4] == [1, 2, 3, 4]


def test_weights_that_are_not_finite_are_not_kept(train, workdir):
    with pytest.raises(ModelError, match="not finite"):
        train(1, "model", stages={1: {"learning_rate": 1e30, "warmup": 0}})
    assert last_checkpoint(workdir / ".model.training") is None


@pytest.fixture
def file_limit():
    """Files larger than this many bytes cannot be written, as on a full disk; the limit that there was comes back."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_a_full_disk_at_a_checkpoint(train, workdir, file_limit, monkeypatch):
    """The error says so, the checkpoint before it stays, and with room it goes on from there."""
    save = Trainer.save_model

    def full_at_4(trainer, *arguments, **options):
        if trainer.state.global_step == 4:
            file_limit(6_000)
        save(trainer, *arguments, **options)

    monkeypatch.setattr(Trainer, "save_model", full_at_4)
    with pytest.raises(ModelError, match=r"Cannot write the checkpoint of step 4 .*resumes from .*checkpoint-2"):
        train(1, "model")
    assert [one.name for one in (workdir / ".model.training").glob("checkpoint-*")] == ["checkpoint-2"]
    assert not (workdir / "model").exists()
    monkeypatch.setattr(Trainer, "save_model", save)
    file_limit(resource.RLIM_INFINITY)
    train(1, "model")
    assert len(read_log(workdir / "model")) == 5


def test_a_full_disk_at_the_end(train, workdir, file_limit, monkeypatch):
    """The checkpoints stay, and no half of a model is there."""
    save = saving.save

    def full(*arguments, **options):
        file_limit(6_000)
        save(*arguments, **options)

    monkeypatch.setattr(session, "save", full)
    with pytest.raises(ModelError, match="Cannot write .*model"):
        train(1, "model")
    file_limit(resource.RLIM_INFINITY)
    assert last_checkpoint(workdir / ".model.training") is not None
    assert not [one for one in workdir.iterdir() if one.name.startswith("model") or one.name.endswith(".part")]


def test_checkpoints_of_another_configuration_are_refused(train, workdir, monkeypatch):
    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", killed)
        with pytest.raises(Killed):
            train(1, "model")
    (workdir / ".model.training" / "checkpoint-1").mkdir()
    with pytest.raises(ModelError) as error:
        train(1, "model", rank=2, seed=3, stages={1: {"mask_ratio": 0.3}})
    assert "seed (0 then, 3 now), stage.mask_ratio (0.5 then, 0.3 now), text" in str(error.value)


def test_a_start_of_another_configuration_is_refused(train, workdir, checkpoints):
    with pytest.raises(
        ModelError, match=r"starts from tiny-one, but .* is not a model of stage 1. Train it .*--stage 1"
    ):
        train(2)
    train(1, "one", stages={1: {"max_steps": 1}})
    with pytest.raises(ModelError) as error:
        train(2, start="one", max_tokens=12, family="qwen3")
    message = str(error.value)
    assert f"llm ({checkpoints['llama']} then, {checkpoints['qwen3']} now), max_tokens (16 then, 12 now)" in message
    with pytest.raises(ModelError, match=r"label \(tiny-one then, other now\)"):
        train(2, start="one", stages={2: {"start": "other"}})
    with pytest.raises(ModelError, match="starts with an untrained connector"):
        train(2, start="one", stages={2: {"start": None}})
    with pytest.raises(ModelError, match="to train encoder 0, connector 1, llm 0 weights, but would train"):
        train(2, start="one", parameters={"connector": 1}, stages={2: {"train": ["connector"]}})


def test_hard_negatives_are_columns(train, workdir, tiny_model, monkeypatch):
    seen = []
    compute = Trainer.compute_loss

    def spy(trainer, model, inputs, *arguments, **options):
        seen.append({name.removesuffix("_input_ids") for name in inputs if name.endswith("_input_ids")})
        return compute(trainer, model, inputs, *arguments, **options)

    monkeypatch.setattr(Trainer, "compute_loss", spy)
    mining = {"model": str(tiny_model), "negatives": 2, "margin": 0.0}
    train(2, stages={2: {"start": None, "mining": mining, "max_steps": 1}})
    assert seen == [{"query", "passage", "negative_1", "negative_2"}]


def test_rows_that_share_their_texts_are_refused(write_config, workdir):
    data = [{"source": name} for name in ("sick", "squad-nqg")]
    config = load_config([write_config(stages={2: {"data": data}})])
    rows = {"sick": [(f"w{i}", f"v{i}") for i in range(9)], "squad-nqg": [("w1", f"w{i}") for i in range(2, 9)]}
    with pytest.raises(DataError, match="squad-nqg: no batch has two rows"):
        stages.fit_two(None, stages.StageData(rows, ""), config, workdir, "cpu")


def test_instructions_stand_before_their_own_texts(train, monkeypatch):
    seen = []
    compute = Trainer.compute_loss

    def spy(trainer, model, inputs, *arguments, **options):
        tokens = model.tokenizer.convert_ids_to_tokens
        seen.append({side: tokens(inputs[f"{side}_input_ids"][0])[1:4] for side in ("query", "passage")})
        return compute(trainer, model, inputs, *arguments, **options)

    monkeypatch.setattr(Trainer, "compute_loss", spy)
    data = [{"source": "squad-nqg", "instruction": "w90 w91."}]
    train(2, stages={2: {"start": None, "data": data, "max_steps": 1}})
    assert seen[0]["query"][:2] == seen[0]["passage"][:2] == ["w90", "w91"]


@pytest.mark.slow
def test_each_alone(train):
    """The language model and the encoder by themselves, trained as stage 2 does."""
    for absent, part in (("encoder", "llm"), ("llm", "encoder")):
        fields = {absent: None, "name": part, "stages": {1: None, 2: {"start": None, "train": [part], "max_steps": 2}}}
        spec, _ = train(2, **fields)
        assert spec.name == f"xalign/tiny-two__{part}"
        assert np.isfinite(load(spec.name, device="cpu").encode(TEXTS)).all()


def test_projection_and_prompts_are_saved(train, workdir):
    train(
        2,
        "model",
        projection=True,
        parameters={"projection": 2 * (24 * 24 + 24)},
        prompts={"default": "w1 "},
        stages={2: {"start": None, "train": ["connector", "projection"], "max_steps": 1}},
    )
    model = load("model", device="cpu")
    assert [type(one).__name__ for one in model] == ["Lusifer", "Pooling", "Dense", "Dense", "Normalize"]
    assert model.prompts["default"] == "w1 "


def test_stage_2_has_the_prompts_of_its_own_configuration(train, workdir):
    train(1, "one", prompts={"default": "w1 ", "query": "w2 "}, stages={1: {"max_steps": 1}})
    for prompts in ({}, {"default": "w3 "}):
        train(2, "two", start="one", prompts=prompts, stages={2: {"max_steps": 1}})
        model = load("two", device="cpu")
        assert model.prompts == {**dict.fromkeys(("query", "document"), prompts.get("default", "")), **prompts}
        assert model.default_prompt_name == ("default" if prompts else None)


def test_bfloat16_keeps_what_is_trained_in_float32(train, built, monkeypatch):
    """And a processor that is slow at it is told of float32."""
    said = []
    monkeypatch.setattr("xalign_models.linalg.onednn.is_slow", lambda *told: bool(said.append(told)))
    train(2, dtype="bfloat16", stages={2: {"start": None, "max_steps": 2}})
    ((model, _),) = built
    assert {one.dtype for one in model.parameters() if one.requires_grad} == {torch.float32}
    assert {one.dtype for one in model.parameters() if not one.requires_grad} == {torch.bfloat16}
    assert ("bfloat16", "Training with dtype float32 takes less time.") in said


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"llm": "t5"}, ModelError, "is an encoder-decoder"),
        ({"llm": "bert", "parameters": {"connector": 560}}, ModelError, r"is an encoder \(bert\)"),
        ({"encoder": "llama"}, ModelError, "is a decoder-only"),
        ({"llm": "no/such-model"}, AssetError, "no/such-model"),
        ({"stages": {1: {"data": [{"source": "fiqa"}]}}}, DataError, "mteb/fiqa"),
        ({"stages": {1: {"data": [{"source": "wikitext-2", "task": "completion"}]}}}, ModelError, "has no pairs"),
    ],
)
def test_what_cannot_be_trained_is_refused(train, workdir, checkpoints, fields, error, message):
    from transformers import T5Config, T5ForConditionalGeneration

    T5ForConditionalGeneration(
        T5Config(vocab_size=32, d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8)
    ).save_pretrained(workdir / "t5")
    known = {"t5": workdir / "t5", "bert": checkpoints["encoder"], "llama": checkpoints["llama"]}
    with pytest.raises(error, match=message):
        train(
            1,
            **{key: str(known.get(value, value)) if isinstance(value, str) else value for key, value in fields.items()},
        )


def test_a_number_of_processes_that_does_not_divide_the_batch_is_refused(train, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ModelError, match="batch_size 8 cannot be shared by 3 processes"):
        train(1)


def test_registered_models_say_how_they_are_trained(workdir):
    for name in ("xlm-roberta-large__mistral-7b", "multilingual-e5-small-q4__smollm2-135m-q4"):
        spec = find_spec(f"xalign/lusifer__{name}")
        assert spec.backbone.llm
        with pytest.raises(ModelError, match="is not trained yet. Train it with `xalign train lusifer"):
            load(f"xalign/lusifer__{name}", device="cpu")
        assert model_meta(spec).revision is None


@pytest.mark.slow
def test_a_stage_measures_and_says_what_was_learnt(train, workdir):
    train(1, "one", connector="least-squares", stages={1: {"held_out": 0.2, "measure_steps": 2}})
    train(2, "two", start="one", connector="least-squares", stages={2: {"held_out": 0.2}})
    one, two = (read_log(workdir / name) for name in ("one", "two"))
    assert [entry["step"] for entry in one if entry["kind"] == "measure"][:3] == [0, 2, 4]
    steps = [entry for entry in one if entry["kind"] == "step"]
    assert {"grad_norm", "grad_norm_encoder", "grad_norm_connector"} <= steps[0].keys()
    for log, name, fields in ((one, "one", {"gain"}), (two, "two", {"accuracy", "chance", "mean_cosine"})):
        assert fields <= next(entry for entry in log if entry["kind"] == "measure").keys()
        card = json.loads((workdir / name / "xalign.json").read_text())["training"]
        assert (card["learnt"], card["verdict"]) == (log[-1]["learnt"], log[-1]["text"])
    shown = {entry["rows"] for entry in steps}
    assert shown <= set(range(1, 9))


@pytest.mark.slow
def test_micro_batches_count_by_their_tokens(train, workdir):
    """Whether a step's rows are encoded together or one by one, loss and gradient are the same."""
    for size in (8, 1):
        fields = {"train": ["connector"], "max_steps": 3, "held_out": 0.0, "mask_ratio": 1e-9, "mini_batch": size}
        train(1, str(size), stages={1: fields})
    whole, parts = ([e for e in read_log(workdir / size) if e["kind"] == "step"] for size in ("8", "1"))
    for field in ("loss", "grad_norm"):
        assert [e[field] for e in parts] == pytest.approx([e[field] for e in whole], rel=1e-3)


@pytest.mark.slow
def test_distillation_draws_vectors_to_the_teachers(train, workdir):
    train(2, "teacher", stages={2: {"start": None, "max_steps": 1}})
    fields = {"start": None, "teacher": str(workdir / "teacher"), "label": "distilled", "epochs": 8, "max_steps": None}
    train(2, "student", seed=1, stages={2: fields})
    card = (workdir / "student" / "xalign.json").read_text()
    assert json.loads(card)["training"]["config"]["stage"]["teacher"] == "teacher"
    assert str(workdir) not in card
    losses = [entry["loss"] for entry in read_log(workdir / "student") if entry["kind"] == "step"]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1
    with pytest.raises(ModelError, match=r"stages\.2\.teacher nowhere is not a model"):
        train(2, "other", stages={2: {**fields, "teacher": "nowhere"}})
    with pytest.raises(ModelError, match="its vectors have 24 dimensions, the model's 16"):
        train(2, "other", llm=None, parameters={"encoder": 896}, stages={1: None, 2: {**fields, "train": ["encoder"]}})


@pytest.mark.slow
def test_distillation_measures_queries_by_their_own_passages(train, workdir, monkeypatch):
    """Not single texts by themselves; each text comes after its instruction, for the teacher too."""
    train(2, "teacher", stages={2: {"start": None, "max_steps": 1}})
    rows, measured, taught = [], [], []

    def read(*args, read=stages.read):
        data = read(*args)
        rows.extend(row for part in data.rows.values() for row in part)
        return data

    monkeypatch.setattr(stages, "read", read)
    monkeypatch.setattr(
        stages, "Retrieval", lambda *args, kind=stages.Retrieval: (measured.extend(args[1]), kind(*args))[1]
    )
    fields = {"start": None, "teacher": str(workdir / "teacher"), "label": "distilled", "max_steps": 1, "held_out": 0.2}
    monkeypatch.setattr(
        stages.Dataset,
        "from_dict",
        lambda table, make=stages.Dataset.from_dict: (taught.extend(table["text"]), make(table))[1],
    )
    data = [{"source": "wikitext-2"}, {"source": "squad-nqg", "instruction": "Answer"}]
    train(2, "mixed", stages={2: {**fields, "data": data}})
    assert measured and {len(row) for row in rows} == {1, 2}
    assert {*measured} <= {(f"Answer.\n{row[0]}", f"Answer. Candidate:\n{row[1]}") for row in rows if len(row) > 1}
    assert {text.startswith("Answer.\n") for text in taught} == {True, False}
    assert {*taught} <= {f"Answer.\n{row[0]}" if len(row) > 1 else row[0] for row in rows}


def test_a_teacher_is_a_directory_or_an_asset(workdir, monkeypatch):
    monkeypatch.setattr("xalign_models.assets.install", lambda name: workdir / "installed" / name)
    (workdir / "all-minilm-l6-v2").mkdir()
    (workdir / "all-minilm-l6-v2" / "modules.json").write_text("[]")
    assert run._teacher(2, None) is None
    assert run._teacher(2, "all-minilm-l6-v2") == workdir / "installed" / "all-minilm-l6-v2"
    assert run._teacher(2, "./all-minilm-l6-v2").resolve() == workdir / "all-minilm-l6-v2"


@pytest.mark.slow
def test_an_embedding_model_reads_through_the_connector_alone(train, workdir, make_bert, built):
    make_bert(workdir / "bert", WORDS, initializer_range=0.2)
    SentenceTransformer(str(workdir / "bert"), device="cpu").save(str(workdir / "embedder"))
    english = {"llm": "embedder", "connector": "least-squares", "parameters": {"connector": 560}}
    fields = {"start": None, "teacher": str(workdir / "embedder"), "train": ["connector"], "max_steps": None}
    train(2, "student", **english, stages={1: None, 2: {**fields, "epochs": 8, "data": [{"source": "wikitext-2"}]}})
    ((model, before),) = built
    moved = {name for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert {".connector." in name for name in moved} == {True}
    losses = [entry["loss"] for entry in read_log(workdir / "student") if entry["kind"] == "step"]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1
    np.testing.assert_allclose(
        load(str(workdir / "student"), device="cpu").encode(TEXTS), model.encode(TEXTS), atol=1e-5
    )


@pytest.mark.slow
def test_a_student_reads_with_the_teachers_lora(train, workdir, monkeypatch):
    """Also when it is put together from its checkpoint, as after several processes."""
    alone = {"encoder": None, "stages": {1: None, 2: {"start": None, "max_steps": 3, "train": ["llm"]}}}
    train(2, "teacher", **alone)
    train(1, "one", stages={1: {"max_steps": 1}})
    fields = {"teacher": str(workdir / "teacher"), "label": "distilled", "max_steps": 2}
    monkeypatch.setattr(session, "is_sharded", lambda model: True)
    for name, parts in (("student", ["encoder", "connector"]), ("own", ["encoder", "connector", "llm"])):
        train(2, name, start="one", stages={2: {**fields, "train": parts}})
    teacher, student, own = (
        {name.split("layers.")[-1]: one for name, one in part.named_parameters() if "lora_" in name}
        for part in (
            load(str(workdir / "teacher"), device="cpu")[0].model,
            *(load(str(workdir / name), device="cpu")[0].llm for name in ("student", "own")),
        )
    )
    assert teacher.keys() == student.keys() == own.keys()
    assert all(torch.equal(one, student[name]) for name, one in teacher.items())
    assert any(float(one.abs().max()) > 0 for name, one in teacher.items() if "lora_B" in name)
    assert not all(torch.equal(one, own[name]) for name, one in teacher.items())


@pytest.mark.parametrize("connector", ["random", "least-squares"])
def test_the_untrained_model_is_the_baseline(english, write_config, workdir, connector):
    config = load_config([write_config(connector=connector)])
    spec, folder = run.untrained(config, workdir / "untrained")
    assert spec.name == f"xalign/lusifer-untrained{'' if connector == 'random' else '-least-squares'}__tiny"
    begun, _ = build.begin(config)
    connectors = [model[0].connector.outer.weight for model in (load(str(folder), device="cpu"), begun)]
    assert torch.equal(*connectors) == (connector == "random")
    card = json.loads((folder / "xalign.json").read_text())
    assert card["training"]["datasets"] == ([] if connector == "random" else ["Multi30k", "SQuAD"])
    assert model_meta(str(folder)).training_datasets == (None if connector == "random" else {"Multi30k", "SQuAD"})


@pytest.mark.parametrize("connector", ["random", "least-squares"])
def test_the_untrained_model_names_the_text_of_its_checkpoints(english, write_config, workdir, monkeypatch, connector):
    monkeypatch.setattr(run, "published_datasets", lambda *names: {"NLI"} if all(names) else set())
    _, folder = run.untrained(load_config([write_config(connector=connector)]), workdir / "untrained")
    assert "NLI" in json.loads((folder / "xalign.json").read_text())["training"]["datasets"]


def test_the_untrained_model_is_written_again_with_other_prompts_or_types(english, write_config, workdir, caplog):
    for fields in ({}, {"prompts": {"default": "w1 "}}, {"dtype": "bfloat16"}):
        run.untrained(load_config([write_config(**fields)]), workdir / "untrained")
        config = json.loads((workdir / "untrained" / "xalign.json").read_text())["training"]["config"]
        assert (config["prompts"], config["dtype"]) == (fields.get("prompts", {}), fields.get("dtype", "float32"))
    assert "same configuration" not in caplog.text
