"""Plans of trainings: counts are those of the published models, and what is beyond all measure is refused."""

from __future__ import annotations

import pytest

from tests.conftest import WORDS
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, Dtype
from xalign_models.training import plan
from xalign_models.training.lira import run as lira
from xalign_models.training.lira.config import load_config as lira_config
from xalign_models.training.lusifer import run as lusifer
from xalign_models.training.lusifer.config import load_config


def test_counts_are_those_of_real_weights(make_bert, tmp_path):
    from transformers import AutoModel

    folder = make_bert(tmp_path / "bert", WORDS)
    weights = AutoModel.from_pretrained(folder)
    found = plan.size_of(str(folder))
    assert found.parameters == sum(one.numel() for one in weights.parameters())
    assert (found.table, found.layers) == (weights.get_input_embeddings().weight.numel(), 2)
    assert (found.width, found.vocabulary) == (16, len(WORDS) + 5)


@pytest.mark.parametrize(("name", "billions"), [("mistralai/Mistral-7B-v0.1", 7.11), ("google/mt5-xl", 3.23)])
def test_published_shapes_have_their_published_size(name, billions):
    assert plan.size_of(name).parameters / 1e9 == pytest.approx(billions, abs=0.01)


def test_large_frozen_weights_are_bfloat16():
    assert plan.frozen_dtype(BackboneSpec("m", "Qwen/Qwen3-1.7B")) is Dtype.BFLOAT16
    assert plan.frozen_dtype(BackboneSpec("m", "Qwen/Qwen3-1.7B"), Dtype.FLOAT32) is Dtype.FLOAT32
    assert plan.frozen_dtype(BackboneSpec("m", "facebook/m2m100_418M")) is Dtype.FLOAT32


def test_the_papers_lusifer_fits_one_device():
    rows = plan.checked([lusifer.plan(load_config(["paper"]), number) for number in (1, 2)])
    assert [row.number for row in rows[:2]] == [2 * 782, 296]
    assert max(row.gigabytes for row in rows) < 80
    assert 1 < rows[-1].hours < 100
    by_hand = 2 * 6_979_588_096 * 256 * 1024 * 3 + 2 * 303_887_360 * 256 * 512 * 3  # forward, again, and backward
    assert rows[0].seconds == pytest.approx(by_hand / plan.FLOPS, rel=1e-3)


def test_a_plan_needs_a_device_however_small_it_is():
    assert [row.part for row in plan.checked([plan.Row.of("stage 1", 2, 0.01, 10.0)])] == ["stage 1", "total, 1 H100"]


def test_distillation_takes_the_memory_of_whole_batches():
    small, whole = (
        lusifer.plan(load_config(["paper", "distilled"], [f"stages.2.mini_batch={n}"]), 2) for n in (16, 256)
    )
    assert small == whole
    contrast = lusifer.plan(load_config(["paper"], ["stages.2.mining=null"]), 2)
    assert small.gigabytes > contrast.gigabytes


def test_more_texts_take_longer_until_it_is_absurd(monkeypatch):
    for name in ("foreign_texts", "rated", "searches"):
        monkeypatch.setattr(lira, name, lambda config: lira.Split(train=[0] * 120))
    config = lira_config(["max"])
    few, many = (lira.plan(config, count) for count in (600, 131_667))
    assert all(row.number in (600, 1800, 120) for row in few)
    assert plan.checked(few)[-1].hours < 2
    with pytest.raises(ModelError, match="hours of an H100.*DeepSeek-R1-Distill-Qwen-32B"):
        plan.checked(many)
    with pytest.raises(ModelError, match="memory of 13"):
        plan.checked([plan.Row.of("a", 1, 1.0, 1e12)])


def test_no_steps_take_no_time(monkeypatch):
    for name in ("foreign_texts", "rated", "searches"):
        monkeypatch.setattr(lira, name, lambda config: lira.Split(train=[0] * 120))
    rows = {row.part: row for row in lira.plan(lira_config(["max"], ["arca.max_steps=0", "lasr.max_steps=0"]), 600)}
    assert [(rows[part].number, rows[part].hours) for part in ("stage arca", "stage lasr")] == [(0, 0), (0, 0)]
