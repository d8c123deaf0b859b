"""``xalign train contrastive``: what it says, what it refuses in one line, and that several processes can run it."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from xalign_models import progress
from xalign_models.training.contrastive.config import ContrastiveConfig


@pytest.fixture
def train(xalign, workdir, tiny_model, write_text):
    """Runs the command on a tiny encoder and 30 rows: (exit status, standard output, lines of standard error)."""
    write_text(workdir / "text", 30, ("ar", "en", "es"))

    def run(*arguments):
        given = ("--backbone", tiny_model, "--pairs", "own:text", "--samples", 20, "--output", "model", *arguments)
        return xalign("train", "contrastive", *given)

    return run


QUICK = ("--set", "batch_size=8", "--set", "rank=4", "--set", "max_steps=2", "--device", "cpu")


@pytest.mark.slow
def test_trains_and_says_where(train, workdir):
    status, printed, (verdict,) = train(*QUICK)
    assert (status, printed) == (0, "xalign/contrastive-20__tiny: model\n")
    assert verdict.startswith("Held-out queries that find their passage among 10: ")
    assert json.loads((workdir / "model" / "xalign.json").read_text())["training"]["verdict"] == verdict
    log = [json.loads(line) for line in (workdir / "model" / "training_log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if entry["kind"] == "step"] == [1, 2]
    assert train(*QUICK)[0] == 0


def test_steps_are_lines_in_a_pipe(train, monkeypatch):
    monkeypatch.setattr(progress, "MINUTE", 0.0)
    monkeypatch.setattr(progress.Lines, "last", 0.0)
    status, _, lines = train(*QUICK)
    assert status == 0
    assert [line.split("|")[2].split("[")[0].strip() for line in lines if line.startswith("train:")][-2:] == [
        "1/2",
        "2/2",
    ]


def test_options_reach_the_training(train, workdir):
    (workdir / "mine.yaml").write_text("tau: 0.1\ncached: true\nseed: 3\naccumulation: 8\n")
    options = ("--config", "mine.yaml", "--set", "learning_rate=1e-3", "--set", "accumulation=2")
    assert train(*QUICK, *options, "--seed", 7, "--languages", "es")[0] == 0
    config = json.loads((workdir / "model" / "xalign.json").read_text())["training"]["config"]
    expected = {
        "tau": 0.1, "learning_rate": 1e-3, "seed": 7, "languages": ["spa-Latn"], "accumulation": 2, "cached": True,
        "batch_size": 8, "rank": 4, "max_steps": 2, "samples": 20, "pairs": "own:text",
    }  # fmt: skip
    assert config | expected == config


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--samples", 31), ("samples 31", "has 30 rows")),
        (("--languages", "de"), ("deu-Latn", "arb-Arab")),
        (("--languages", "xx-nonsense"), ("xx-nonsense",)),
        (("--languages", "all"), ("--languages all", "give codes.")),
        (("--pairs", "nonsense"), ("nonsense", "xalign corpora")),
        (("--pairs", "lingua"), ("XALIGN_DATA",)),
        (("--pairs", "ntrex"), ("XALIGN_DATA",)),
        (("--backbone", "lsar__LaBSE"), ("lsar__LaBSE", "backbone")),
        (("--backbone", "no/such-model"), ("no/such-model",)),
        (("--set", "tau=0"), ("tau 0: it must be above 0",)),
        (("--seed", -1), ("seed -1: at least 0",)),
        (("--samples", "x"), ("--samples", "--help")),
        (("--set", "rank=x"), ("rank 'x'",)),
        (("--set", "lr=1"), ("lr: no such field", "learning_rate")),
        (("--set", "tau"), ("--set 'tau'", "FIELD=VALUE")),
        (("--config", "none"), ("--config none: no such file", "few")),
        (("--set", "dtype=float16"), ("dtype float16",)),
        (("--device", "tpu"), ("--device tpu",)),
        (("--output", "text"), ("--output text", "not a model")),
        (("--set", "learning_rate=1e30"), ("not finite", "learning_rate")),
    ],
)
def test_refuses_in_one_line(train, arguments, parts):
    status, out, err = train(*QUICK, *arguments)
    assert (status, out, len(err)) == (2, "", 1), err
    for part in parts:
        assert part in err[0]


def test_help_has_every_field_with_its_default(train):
    status, printed, _ = train("--help")
    text = " ".join(printed.split())
    assert status == 0 and "--samples <int> Rows per language, from the top" in text and "[default: 1000]" in text
    listed = printed.partition("Fields for --set:")[2]
    for field in dataclasses.fields(ContrastiveConfig):
        flagged = field.name in ("pairs", "samples", "languages", "seed")
        assert (f"--{field.name}" in printed) if flagged else (f"\n  {field.name} " in listed)


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_two_processes_train_one_model(write_text, launch, workdir, tiny_model, cached):
    """Each reads half of a step's pairs, one of them writes, and every weight that is trained has moved."""
    from xalign_models.models.building import build, load
    from xalign_models.models.names import find_spec
    from xalign_models.training.contrastive.training import add_lora

    write_text(workdir / "text", 30, ("ar", "en", "es"))
    printed = launch(
        "train", "contrastive", "--backbone", tiny_model, "--pairs", "own:text", "--samples", 20, "--set",
        "batch_size=4", "--set", "rank=4", "--set", "max_steps=3", "--set", "tau=100", "--set", f"cached={cached}",
        "--device", "cpu", "-o", "model",
    )  # fmt: skip
    assert printed == "xalign/contrastive-20__tiny: model\n"
    log = [json.loads(line) for line in (workdir / "model" / "training_log.jsonl").read_text().splitlines()]
    steps = [entry for entry in log if entry["kind"] == "step"]
    assert [entry["rows"] for entry in steps] == [8, 8, 8]  # of 16
    # At this tau all candidates are as good: those of a batch, or of the whole step.
    assert steps[0]["loss"] == pytest.approx(math.log(16 if cached else 4), abs=0.05)
    before = build(find_spec(str(tiny_model)), device="cpu")
    add_lora(before, ContrastiveConfig(rank=4))
    after = dict(load("model", device="cpu").named_parameters())
    trained = {name: one for name, one in before.named_parameters() if one.requires_grad}
    assert trained
    assert not [name for name, one in trained.items() if torch.equal(one, after[name])]
    assert sorted(one.name for one in workdir.iterdir()) == ["cache", "data", "model", "store", "text"]


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_default_output_that_holds_other_files_is_refused_before_the_training(xalign, workdir, monkeypatch, stage):
    from xalign_models.training.lusifer import run
    from xalign_models.training.lusifer.config import load_config

    def never(*_):
        raise AssertionError("trained")

    monkeypatch.setattr(run, "train", never)
    monkeypatch.setattr(run, "untrained", never)
    folder = run.default_output(load_config(["small"]), stage)
    folder.mkdir(parents=True)
    (folder / "own.txt").write_text("mine")
    status, _, (line,) = xalign("train", "lusifer", "--config", "small", "--stage", stage)
    assert status == 2 and str(folder) in line and "trained" not in line.replace(str(folder), "")


def test_a_plan_needs_no_stage_and_a_training_does(xalign, workdir):
    status, out, err = xalign("train", "lusifer", "--config", "paper", "--plan")
    assert (status, err) == (0, [])
    assert [line.split(",")[0].split("\t")[0] for line in out.splitlines()[1:]] == ["stage 1", "stage 2", "total"]
    for left_out, stage in (("finetuning-only", 2), ("alignment-only", 1)):
        status, out, _ = xalign("train", "lusifer", "--config", f"paper,{left_out}", "--plan")
        assert status == 0 and [line.split()[1] for line in out.splitlines()[1:]] == [f"{stage},", "1"]
    status, _, (line,) = xalign("train", "lusifer", "--config", "small")
    assert status == 2
    assert "--stage is missing: 1 is alignment" in line


@pytest.mark.parametrize("method", ["lusifer", "lira"])
def test_only_liras_plan_counts_texts_to_translate(xalign, workdir, method):
    status, out, _ = xalign("train", method, "--help")
    assert status == 0
    assert ("texts to translate" in " ".join(out.replace("│", "").split())) == (method == "lira")


def test_a_choice_that_is_none_of_the_listed_is_one_line(xalign, workdir):
    status, out, err = xalign("train", "lira", "--stage", "both")
    assert (status, out, len(err)) == (2, "", 1)
    assert "'arca', 'lasr', 'all', 'untrained'" in err[0]
