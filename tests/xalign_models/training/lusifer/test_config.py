"""Configurations: the shipped ones, one over another, and what is refused."""

from __future__ import annotations

import json

import pytest

from xalign_models.configuration import shipped
from xalign_models.errors import ModelError
from xalign_models.training.lusifer.config import load_config, passage_prompt, query_prompt
from xalign_models.training.lusifer.data.sources import SOURCES

ABLATIONS = ("alignment-only", "connector-only", "finetuning-only", "frozen-encoder")


def test_shipped():
    others = (
        "paper",
        "small",
        "two-cores",
        "llm-alone",
        "encoder-alone",
        "least-squares",
        "many-pairs",
        "distilled",
        "gemma",
        "embedder",
    )
    assert set(shipped("xalign_models.training.lusifer")) == {*ABLATIONS, *others}


def test_the_papers_numbers():
    config = load_config(["paper"])
    one, two = config.stage(1), config.stage(2)
    assert (config.rank, config.alpha, config.max_tokens) == (16, 32, 512)
    assert (one.learning_rate, one.epochs, one.batch_size, one.mask_ratio) == (1.5e-4, 2, 256, 0.5)
    assert (two.learning_rate, two.epochs, two.batch_size, two.tau, two.mining.negatives) == (5e-5, 1, 256, 0.05, 7)
    for stage in (one, two):
        assert (stage.scheduler, stage.warmup, stage.weight_decay, stage.max_grad_norm) == ("cosine", 0.1, 0.01, 1.0)
    assert {data.source: data.samples for data in one.data} == {"wikitext-103": 100_000, "msmarco": 100_000}
    printed = {
        "msmarco": 100_000,
        "fever": 100_000,
        "paq": 100_000,
        "snli": 100_000,
        "hotpotqa": 97_800,
        "squad": 97_400,
        "fiqa": 6_420,
        "nq": 3_420,
    }
    counted = 1 + two.mining.negatives  # the paper counts negatives, too
    assert {data.source: data.samples for data in two.data} == {name: rows // counted for name, rows in printed.items()}
    assert all(data.instruction for data in two.data)


@pytest.mark.parametrize("base", [["paper"], ["small"], ["small", "two-cores"]], ids="-".join)
@pytest.mark.parametrize("over", ["", *ABLATIONS, "llm-alone", "encoder-alone"])
def test_each_is_whole(base, over):
    config = load_config([*base, over] if over else base)
    for number, stage in config.stages.items():
        if stage is not None:
            assert {data.source for data in stage.data} <= SOURCES.keys()
            assert number == 1 or all(SOURCES[data.source].pairs for data in stage.data)
            determined = config.to_dict(number)
            assert json.loads(json.dumps(determined)) == determined
            assert determined["stage"]["label"] == stage.label and "stages" not in determined
    starts = {stage.start for number, stage in config.stages.items() if stage and number == 2}
    labels = {stage.label for number, stage in config.stages.items() if stage and number == 1}
    assert starts <= labels | {None}


def test_every_run_has_a_name_of_its_own(tmp_path):
    names = [
        config.backbone(number, tmp_path).name + stage.label
        for over in ("", *ABLATIONS, "llm-alone", "encoder-alone")
        for config in [load_config(["small", over] if over else ["small"])]
        for number, stage in config.stages.items()
        if stage is not None
    ]
    # Alignment alone is the full model's stage 1, and two ablations share theirs.
    assert len(names) == 10
    assert len(set(names)) == 8


def test_later_ones_go_over_earlier_ones(write_config):
    base = write_config()
    over = write_config("over.yaml", stages={2: {"tau": 0.1, "data": [{"source": "sick"}]}}, seed=7)
    found, before = load_config([base, over]), load_config([base])
    assert (found.seed, found.stage(2).tau, found.stage(2).label) == (7, 0.1, before.stage(2).label)
    assert [data.source for data in found.stage(2).data] == ["sick"]
    assert found.stage(1) == before.stage(1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nonsense": 1}, "nonsense: no such field; there are .*stages"),
        ({"stages": {1: {"nonsense": 1}}}, r"stages\.1\.nonsense: no such field"),
        ({"stages": {2: {"data": [{"sauce": "sick"}]}}}, r"stages\.2\.data\.0\.sauce: no such field"),
        ({"stages": {2: {"data": [{"samples": 3}]}}}, r"stages\.2\.data\.0\.source is missing"),
        ({"stages": {2: {"data": []}}}, r"stages\.2\.data \[\]: at least 1 item"),
        ({"stages": {2: {"train": ["decoder"]}}}, r"stages\.2\.train\.0 'decoder': one of 'encoder'"),
        ({"stages": {1: {"train": ["llm"]}}}, r"stages\.1\.train: llm is trained in stage 2 only"),
        (
            {"projection": True, "parameters": {"projection": 1}, "stages": {1: {"train": ["projection"]}}},
            r"stages\.1\.train: projection is trained in stage 2",
        ),
        (
            {"stages": {2: {"train": ["projection"]}}},
            r"stages\.2\.train: projection cannot be trained: the model has none",
        ),
        ({"projection": True, "stages": {2: {"train": ["projection"]}}}, "parameters lacks its number"),
        ({"stages": {2: {"batch_size": 1}}}, "batch_size 1"),
        ({"stages": {2: {"mini_batch": 3}}}, "mini_batch 3: it must divide batch_size 8"),
        ({"stages": {1: {"mask_ratio": 1}}}, "mask_ratio 1"),
        ({"stages": {2: {"tau": 0}}}, "tau 0"),
        (
            {"stages": {2: {"teacher": "t", "mining": {"model": "m", "negatives": 1}}}},
            r"stages\.2\.mining: a teacher uses no hard negatives",
        ),
        ({"stages": {2: {"learning_rate": "high"}}}, r"stages\.2\.learning_rate 'high': it must be a valid number"),
        ({"stages": {2: {"learning_rates": {"encoder": 0}}}}, r"learning_rates\.encoder 0"),
        ({"stages": {2: {"learning_rates": {"head": 1}}}}, "learning_rates: head is not one of encoder"),
        (
            {"stages": {1: {"data": [{"source": "sick", "task": "x"}]}}},
            r"stages\.1\.data\.0\.task 'x': one of 'reconstruction'",
        ),
        ({"stages": {1: {"data": [{"source": "sick", "samples": 0}]}}}, r"stages\.1\.data\.0\.samples 0"),
        (
            {"stages": {1: {"data": [{"source": "sick", "samples": one} for one in (4, 8)]}}},
            r"stages\.1\.data names sick-reconstruction twice",
        ),
        (
            {"stages": {2: {"data": [{"source": "sick", "task": task} for task in ("reconstruction", "completion")]}}},
            r"stages\.2\.data names sick twice",
        ),
        ({"encoder": None}, r"stages\.1 needs both"),
        ({"encoder": None, "llm": None}, "name at least one"),
        ({"dtype": "float16"}, "dtype float16"),
        ({"dtype": "int4"}, "int4"),
        ({"rank": 0}, "rank 0"),
        ({"dropout": 2}, r"dropout 2: it must be below 1"),
        ({"seed": -1}, "seed -1: at least 0"),
        ({"stages": {1: {"scheduler": "foo"}}}, r"stages\.1\.scheduler 'foo': one of 'linear', 'cosine'"),
        ({"stages": {1: {"warmup": -1}}}, r"stages\.1\.warmup -1: at least 0"),
        ({"stages": {1: {"weight_decay": -1}}}, r"stages\.1\.weight_decay -1: at least 0"),
        ({"max_tokens": 2}, "max_tokens 2"),
        *(({"name": name}, "name .*: write letters, digits") for name in ("../x", "a/b", "..", "a b", "a\n")),
        *(({"stages": {2: {"label": one}}}, r"stages\.2\.label .*: write letters") for one in ("", "../x", "a\\b")),
        ({"stages": None}, "stages None: fields were expected"),
    ],
)
def test_nonsense_is_refused(write_config, fields, message):
    name = write_config(**fields)
    with pytest.raises(ModelError, match=f"(?s)--config .*{message}") as error:
        load_config([name])
    assert "\n" not in str(error.value)


def test_a_source_may_serve_both_tasks_of_stage_1(write_config):
    data = [{"source": "sick", "task": task} for task in ("reconstruction", "completion")]
    assert len(load_config([write_config(stages={1: {"data": data}})]).stage(1).data) == 2


def test_a_stage_that_there_is_not():
    with pytest.raises(ModelError, match="--stage 2: this configuration does not have this stage"):
        load_config(["small", "alignment-only"]).stage(2)


def test_a_field_of_a_stage_is_set(write_config):
    found = load_config([write_config()], ["stages.2.learning_rates={encoder: 1e-4}", "stages.1.max_steps=7"])
    assert (found.stage(2).learning_rates, found.stage(1).max_steps) == ({"encoder": 1e-4}, 7)


@pytest.mark.parametrize("instruction", ["Answer it", "Answer it.", "Answer it. "])
def test_instructions_end_in_one_full_stop(instruction):
    assert query_prompt(instruction) + "text" == "Answer it.\ntext"
    assert passage_prompt(instruction) + "text" == "Answer it. Candidate:\ntext"


def test_no_instruction_is_no_prompt():
    assert query_prompt("") == passage_prompt(" ") == ""
