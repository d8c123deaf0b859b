"""The training loop: batches, prompts, languages, accumulation, the log, and a loss that is not finite."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments

from xalign_models import corpora
from xalign_models.backbones.inputs import TEMPLATES
from xalign_models.errors import DataError, ModelError
from xalign_models.models.building import build
from xalign_models.training import records
from xalign_models.training.contrastive import training
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.training import add_lora, contrastive_loss, training_pairs
from xalign_models.training.trainer import Trainer

QUICK = ContrastiveConfig(
    pairs="own:text", samples=20, rank=4, dropout=0.0, batch_size=8, accumulation=2, epochs=2, learning_rate=1e-2
)


@pytest.fixture
def seen(monkeypatch):
    """The features of every batch that meets the loss, in order."""
    batches = []

    def spy(model, config):
        loss = contrastive_loss(model, config)
        loss.register_forward_pre_hook(lambda _, arguments: batches.append([dict(one) for one in arguments[0]]))
        return loss

    monkeypatch.setattr(training, "contrastive_loss", spy)
    return batches


@pytest.fixture
def fit(workdir, text, spec):
    """Trains a tiny model: (model, its log)."""

    def run(kind="llama", config=QUICK, folder="work", **fields):
        model = build(spec(kind, **fields), device="cpu")
        add_lora(model, config)
        pairs, _ = training_pairs(corpora.load(config.pairs), config)
        return model, training.fit(pairs, [], config, "cpu", model, workdir / folder)

    return run


def ids(features):
    return [
        row[mask.bool()].tolist() for row, mask in zip(features["input_ids"], features["attention_mask"], strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gemma", "bert"])
def test_the_loss_goes_down_and_the_log_says_how(fit, kind):
    model, log = fit(kind, dataclasses.replace(QUICK, epochs=6))
    assert [entry["step"] for entry in log] == list(range(1, 31))  # 80 pairs, 16 a step
    assert np.mean([entry["loss"] for entry in log[-5:]]) < 0.8 * np.mean([entry["loss"] for entry in log[:5]])
    assert log[0]["learning_rate"] == pytest.approx(1e-2)
    assert log[-1]["learning_rate"] == pytest.approx(1e-2 / 30)  # linear, to zero after the last step
    seconds = [entry["seconds"] for entry in log]
    assert seconds == sorted(seconds)
    assert log[-1]["epoch"] == 6
    assert not model.training


def test_a_step_is_the_mean_of_its_batches(fit, seen, workdir, spec):
    """One step of two batches of eight: logged loss and gradient norm are those of the mean of both."""
    config = dataclasses.replace(QUICK, max_steps=1)
    _, log = fit(config=config)
    batches = list(seen)
    assert [len(batch[0]["input_ids"]) for batch in batches] == [8, 8]
    model = build(spec("llama"), device="cpu")
    add_lora(model, config)
    loss = contrastive_loss(model.train(), config)
    mean = sum(loss(batch, None) for batch in batches) / 2
    mean.backward()
    norm = torch.stack([one.grad.norm() for one in model.parameters() if one.grad is not None]).norm()
    assert log[0]["loss"] == pytest.approx(mean.item(), rel=1e-5)
    assert log[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_cached_takes_a_step_as_one_batch(fit, seen):
    _, log = fit(config=dataclasses.replace(QUICK, cached=True, epochs=1))
    assert [len(batch[0]["input_ids"]) for batch in seen[:4]] == [16] * 4  # 20 rows and no text twice: the last is less
    assert len(log) == len(seen) == 5


def test_no_text_comes_twice_in_a_batch():
    """English is in every row's pairs, and a text may be the same in two languages."""
    rng = random.Random(0)
    same = [f"name {i}" for i in range(10)]
    pairs = [
        ({"text": f"row {i % 20}", "lang": "eng-Latn"}, {"text": f"zeile {i}", "lang": "deu-Latn"}) for i in range(60)
    ]
    pairs += [({"text": one, "lang": "eng-Latn"}, {"text": f"Name {one}", "lang": "deu-Latn"}) for one in same]
    pairs += [({"text": f"nombre {one}", "lang": "spa-Latn"}, {"text": one, "lang": "spa-Latn"}) for one in same]
    rng.shuffle(pairs)
    dataset = Dataset.from_dict({"anchor": [one for one, _ in pairs], "positive": [one for _, one in pairs]})
    sampler = training._DistinctTexts(dataset, batch_size=8, drop_last=False, generator=torch.Generator(), seed=0)
    batches = list(sampler)
    assert sorted(i for batch in batches for i in batch) == list(range(80))
    for batch in batches:
        texts = [side["text"] for i in batch for side in pairs[i]]
        assert len(texts) == len(set(texts))
    assert list(sampler) == batches
    sampler.set_epoch(1)
    assert list(sampler) != batches


def test_an_epoch_is_made_of_the_pairs(fit, seen):
    """Each at most once; few wait for the next epoch because their text was in every batch that had room."""
    model, _ = fit(config=dataclasses.replace(QUICK, epochs=1))
    shown: Counter[tuple[str, ...]] = Counter()
    for batch in seen:
        sides = [[model.tokenizer.decode(row).split('"')[1].strip() for row in ids(side)] for side in batch]
        shown.update(zip(*sides, batch[0]["lang"], batch[1]["lang"], strict=True))
    pairs, _ = training_pairs(corpora.load(QUICK.pairs), QUICK)
    expected = Counter((one.text, other.text, one.lang, other.lang) for one, other in pairs)
    assert shown <= expected
    assert shown.total() > 0.9 * expected.total()


def test_rows_that_no_batch_has_room_for_are_counted_or_refused(fit, text, caplog):
    fit(config=dataclasses.replace(QUICK, samples=5, languages=("arb-Arab",), batch_size=32, max_steps=1))
    assert "own:text: an epoch sees 5 of 10 rows" in caplog.text
    for file in text.glob("*.txt"):
        file.write_text("w1\n" * 40)
    with pytest.raises(DataError, match="own:text: no batch has two rows"):
        fit(folder="other")


def test_the_backbones_own_prompt_is_used(fit, seen):
    model, _ = fit("bert", dataclasses.replace(QUICK, max_steps=1))
    start = model.tokenizer("w1 w2")["input_ids"][:-1]
    assert all(row[: len(start)] == start for batch in seen for side in batch for row in ids(side))


def test_prompts_by_language_are_those_of_each_text(fit, seen):
    """Self-prompts: the language goes along with the text into the first module."""
    marks = {"arb-Arab": "w91", "eng-Latn": "w92", "spa-Latn": "w93"}
    assert marks.keys() <= TEMPLATES.keys()
    prompts = tuple((code, f'{mark} : "[TEXT]" means in one word:"') for code, mark in marks.items())
    model, _ = fit(config=dataclasses.replace(QUICK, epochs=1), prompts=prompts)
    first = {code: model.tokenizer(mark, add_special_tokens=False)["input_ids"][0] for code, mark in marks.items()}
    languages = set()
    for batch in seen:
        for one, other in zip(batch[0]["lang"], batch[1]["lang"], strict=True):
            languages.add((one, other))
        for side in batch:
            assert [row[1] for row in ids(side)] == [first[code] for code in side["lang"]]
    assert languages == {(a, "eng-Latn") for a in ("arb-Arab", "spa-Latn")} | {
        ("eng-Latn", a) for a in ("arb-Arab", "spa-Latn")
    }


@pytest.mark.slow
def test_bfloat16_trains_and_keeps_lora_in_float32(fit, monkeypatch):
    monkeypatch.setattr("xalign_models.linalg.onednn.is_slow", lambda *_: False)  # else all is computed with in float32
    config = dataclasses.replace(QUICK, dtype="bfloat16", epochs=6)
    model, log = fit("gemma", config, dtype="bfloat16")
    assert {one.dtype for one in model.parameters() if one.requires_grad} == {torch.float32}
    assert {one.dtype for one in model.parameters() if not one.requires_grad} == {torch.bfloat16}
    assert np.mean([entry["loss"] for entry in log[-5:]]) < 0.8 * np.mean([entry["loss"] for entry in log[:5]])


def test_a_loss_that_is_not_finite_stops_it(fit, monkeypatch):
    def broken(model, config):
        loss = contrastive_loss(model, config)
        loss.register_forward_hook(lambda *_: torch.tensor(float("nan"), requires_grad=True))
        return loss

    monkeypatch.setattr(training, "contrastive_loss", broken)
    with pytest.raises(ModelError, match="not finite in step 1"):
        fit()


class Killed(Exception):  # noqa: N818
    """Stands in for a signal."""


def kill_at(step, monkeypatch):
    compute = Trainer.compute_loss

    def until(trainer, *arguments, **options):
        if trainer.state.global_step == step:
            raise Killed
        return compute(trainer, *arguments, **options)

    return partial(monkeypatch.setattr, Trainer, "compute_loss", until)


def trained(model):
    return {name: one.detach() for name, one in model.named_parameters() if one.requires_grad}


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 10])
def test_killed_and_started_again_it_ends_as_if_never_stopped(fit, monkeypatch, step, workdir):
    """In the middle of an epoch, dropout and all: every weight is the same to the bit."""
    config = dataclasses.replace(QUICK, dropout=0.3, epochs=3)
    whole, log = fit(config=config, folder="whole")
    with monkeypatch.context() as patch:
        kill_at(step, patch)()
        with pytest.raises(Killed):
            fit(config=config)
    (workdir / "work" / "checkpoint-99").mkdir()  # killed while it was written: no state yet
    again, log_again = fit(config=config)
    for name, expected in trained(whole).items():
        assert torch.equal(trained(again)[name], expected), name
    drop = "seconds"
    assert [{**entry, drop: 0} for entry in log_again] == [{**entry, drop: 0} for entry in log]
    assert [entry[drop] for entry in log_again] == sorted(entry[drop] for entry in log_again)
    written = (workdir / "work" / records.LOG).read_text()
    assert written == records.json_lines(log_again)


@pytest.mark.slow
def test_a_process_beside_the_first_writes_no_weights(fit, monkeypatch, workdir):
    monkeypatch.setattr(SentenceTransformerTrainingArguments, "should_save", property(lambda _: False))
    fit()
    assert (workdir / "work").is_dir()
    assert not list((workdir / "work").rglob(records.WEIGHTS))


@pytest.mark.slow
def test_killed_after_the_last_step_nothing_is_trained_again(fit, seen):
    whole, _ = fit()
    seen.clear()
    again, log = fit()
    assert not seen
    assert len(log) == 10
    assert all(torch.equal(trained(again)[name], one) for name, one in trained(whole).items())


def test_a_training_that_was_killed_after_its_last_checkpoint_takes_no_further_step(fit):
    within_an_epoch = dataclasses.replace(QUICK, max_steps=2)
    model, log = fit(config=within_an_epoch)
    again, log_again = fit(config=within_an_epoch)  # the checkpoint of the last step is still there
    assert [entry["step"] for entry in log_again] == [entry["step"] for entry in log]
    for (name, one), other in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name
