"""``xalign train contrastive``: what it says, what it refuses in one line, and that several processes can run it."""

from __future__ import annotations

import json
import math

import pytest
import torch


@pytest.fixture
def train(xalign, workdir, tiny_model, write_text):
    """Runs the command on a tiny encoder and 30 rows: (exit status, standard output, lines of standard error)."""
    write_text(workdir / "text", 30, ("ar", "en", "es"))

    def run(*arguments):
        given = ("--backbone", tiny_model, "--pairs", "own:text", "--samples", 20, "--output", "model", *arguments)
        return xalign("train", "contrastive", *given)

    return run


QUICK = ("--batch-size", 8, "--rank", 4, "--max-steps", 2, "--device", "cpu")


def test_trains_and_says_where(train, workdir):
    status, printed, (verdict,) = train(*QUICK)
    assert (status, printed) == (0, "xalign/contrastive-20__tiny: model\n")
    assert verdict.startswith("Held-out queries that find their passage among 10: ")
    assert json.loads((workdir / "model" / "xalign.json").read_text())["training"]["verdict"] == verdict
    log = [json.loads(line) for line in (workdir / "model" / "training_log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if entry["kind"] == "step"] == [1, 2]
    assert train(*QUICK)[0] == 0


def test_options_reach_the_training(train, workdir):
    options = ("--tau", 0.1, "--lr", 1e-3, "--seed", 7, "--languages", "es", "--accumulation", 2, "--cached")
    assert train(*QUICK, *options)[0] == 0
    config = json.loads((workdir / "model" / "xalign.json").read_text())["training"]["config"]
    expected = {
        "tau": 0.1, "learning_rate": 1e-3, "seed": 7, "languages": ["spa-Latn"], "accumulation": 2, "cached": True,
        "batch_size": 8, "rank": 4, "max_steps": 2, "samples": 20, "pairs": "own:text",
    }  # fmt: skip
    assert config | expected == config


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--samples", 31), ("--samples 31", "has 30 rows")),
        (("--languages", "de"), ("deu-Latn", "arb-Arab")),
        (("--languages", "xx-nonsense"), ("xx-nonsense",)),
        (("--languages", "all"), ("--languages all", "give codes.")),
        (("--pairs", "nonsense"), ("nonsense", "xalign corpora")),
        (("--pairs", "lingua"), ("XALIGN_DATA",)),
        (("--pairs", "ntrex"), ("XALIGN_DATA",)),
        (("--backbone", "lsar__LaBSE"), ("lsar__LaBSE", "backbone")),
        (("--backbone", "no/such-model"), ("no/such-model",)),
        (("--tau", 0), ("--tau",)),
        (("--seed", -1), ("--seed -1: at least 0",)),
        (("--rank", "x"), ("--rank", "--help")),
        (("--dtype", "float16"), ("--dtype float16",)),
        (("--device", "tpu"), ("--device tpu",)),
        (("--output", "text"), ("--output text", "no model")),
        (("--lr", 1e30), ("not finite", "--lr")),
    ],
)
def test_refuses_in_one_line(train, arguments, parts):
    status, out, err = train(*QUICK, *arguments)
    assert (status, out, len(err)) == (2, "", 1), err
    for part in parts:
        assert part in err[0]


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_two_processes_train_one_model(write_text, launch, workdir, tiny_model, cached):
    """Each reads half of a step's pairs, one of them writes, and every weight that is trained has moved."""
    from xalign_models import models
    from xalign_models.training.contrastive import ContrastiveConfig
    from xalign_models.training.contrastive.objective import add_lora

    write_text(workdir / "text", 30, ("ar", "en", "es"))
    printed = launch(
        "train", "contrastive", "--backbone", tiny_model, "--pairs", "own:text", "--samples", 20, "--batch-size", 4,
        "--rank", 4, "--max-steps", 3, "--tau", 100, "--device", "cpu", "-o", "model",
        *(["--cached"] if cached else ()),
    )  # fmt: skip
    assert printed == "xalign/contrastive-20__tiny: model\n"
    log = [json.loads(line) for line in (workdir / "model" / "training_log.jsonl").read_text().splitlines()]
    steps = [entry for entry in log if entry["kind"] == "step"]
    assert [entry["rows"] for entry in steps] == [8, 8, 8]  # of 16
    # At this tau all candidates are as good: those of a batch, or of the whole step.
    assert steps[0]["loss"] == pytest.approx(math.log(16 if cached else 4), abs=0.05)
    before = models.build(models.find_spec(str(tiny_model)), device="cpu")
    add_lora(before, ContrastiveConfig(rank=4))
    after = dict(models.load("model", device="cpu").named_parameters())
    trained = {name: one for name, one in before.named_parameters() if one.requires_grad}
    assert trained
    assert not [name for name, one in trained.items() if torch.equal(one, after[name])]
    assert sorted(one.name for one in workdir.iterdir()) == ["cache", "data", "model", "store", "text"]
