"""What a run sends is told before its first request, and is what it then sends."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import xalign_models
from tests.registries import restored
from xalign_models.backbones.endpoints.settings import METER
from xalign_models.cli import main
from xalign_models.errors import ModelError
from xalign_models.evaluation.planning import announce
from xalign_models.evaluation.run import run
from xalign_models.models import catalogue, recipe
from xalign_models.plugins import BACKBONES
from xalign_models.plugins import TASKS as REGISTERED
from xalign_models.specs import AlignmentSpec, BackboneSpec
from xalign_models.store import open_store

TASKS = ["OwnParallel-one", "OwnParallel-two"]
OPTIONS = {"languages": None, "device": "cpu"}


@pytest.fixture
def text(workdir, write_text, monkeypatch):
    """Two tasks that share half of their texts, and text to fit on."""
    one, two = (write_text(workdir / name, 20) for name in ("one", "two"))
    for file in two.iterdir():
        lines = file.read_text().splitlines()
        file.write_text("".join(f"{line}\n" for line in [*lines[:10], *(f"{line} w1 w2" for line in lines[10:])]))
    monkeypatch.setenv("XALIGN_OWN", f"one={one},two={two}")
    monkeypatch.setenv("XALIGN_ENDPOINT_PRICE", "1")
    with restored(BACKBONES), restored(REGISTERED):
        yield write_text(workdir / "fit", 40, seed=3)


def told(models, caplog, **options):
    caplog.clear()
    announce(models, TASKS, Path("out"), store=open_store(), **OPTIONS, **options)
    texts, tokens = re.search(r"The run sends ([\d,]+) texts, about ([\d,]+) tokens", caplog.text).groups()
    return int(texts.replace(",", "")), int(tokens.replace(",", ""))


def sent(models, server, **options):
    before, tokens = sum(server.asked.values()), METER.estimated
    outcomes = list(run(models, TASKS, Path("out"), store=open_store(), **OPTIONS, **options))
    assert [outcome.error for outcome in outcomes] == [""] * len(outcomes)
    assert set(server.asked.values()) <= {1}
    return sum(server.asked.values()) - before, METER.estimated - tokens


def test_each_distinct_text_that_is_not_stored_counts_once(server, text, caplog):
    aligned = xalign_models.fit("lsar", backbone=server.openai, corpus=f"own:{text}", device="cpu")
    xalign_models.save(aligned, "aligned")
    models = [server.openai, "aligned"]
    METER.spent = METER.estimated = (
        0.0  # the server counts words: what it said of the fit text would scale the estimate
    )
    before = sum(server.asked.values())
    expected = told(models, caplog)
    assert sum(server.asked.values()) == before
    assert 60 < expected[0] < 2 * 3 * 20
    assert sent(models, server) == expected
    assert told(models, caplog) == (0, 0)


@pytest.mark.parametrize("languages", [None, ["deu", "eng"]])
def test_the_fit_text_of_the_languages_asked_for_counts(server, text, caplog, monkeypatch, languages):
    fit = AlignmentSpec("centered", "centered", (), (f"own:{text}",))
    monkeypatch.setitem(catalogue._METHODS, "centered", fit)
    monkeypatch.setitem(OPTIONS, "languages", languages)
    BACKBONES.register("served", BackboneSpec("served", server.openai))
    assert told(["xalign/centered__served"], caplog) == sent(["xalign/centered__served"], server)


@pytest.mark.parametrize("method", ["centered", "whitened", "centered+procrustes", "lsar"])
def test_texts_of_languages_without_a_map_are_not_sent_and_do_not_count(server, text, caplog, monkeypatch, method):
    next(path for path in text.iterdir() if path.name.startswith("fra")).unlink()
    monkeypatch.setitem(catalogue._METHODS, method, AlignmentSpec(method, method, (), (f"own:{text}",)))
    BACKBONES.register("served", BackboneSpec("served", server.openai))
    assert told([f"xalign/{method}__served"], caplog) == sent([f"xalign/{method}__served"], server)


def test_the_text_of_the_ranges_of_int8_counts(server, text, caplog, monkeypatch):
    monkeypatch.setattr(recipe, "CALIBRATION", AlignmentSpec("int8", "centered", corpora=(f"own:{text}",)))
    overrides = {"vectors": "int8"}
    assert told([server.openai], caplog, overrides=overrides) == sent([server.openai], server, overrides=overrides)


def test_a_run_beyond_the_budget_is_refused_before_its_first_request(server, text, monkeypatch, caplog):
    _, tokens = told([server.openai], caplog)
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", str(tokens - 1))
    with pytest.raises(ModelError, match=rf"needs about {tokens} tokens .*budget is {tokens - 1} .*Raise --budget"):
        told([server.openai], caplog)
    assert not server.asked
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", str(tokens))
    assert sent([server.openai], server)[1] == tokens


def test_the_command_is_refused_by_its_budget(server, text, monkeypatch, capsys):
    arguments = ["-m", server.openai, "-t", "OwnParallel-one", "--budget", "3", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["xalign", "run", *arguments])
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", "")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "the budget is 3 tokens" in capsys.readouterr().err
    assert not server.asked


def test_what_is_scored_does_not_count_and_nothing_is_told_without_a_price(server, text, caplog, monkeypatch):
    texts, _ = sent([server.openai], server)
    assert texts > 60
    open_store().clear()
    assert told([server.openai], caplog) == (0, 0)
    (file,) = Path("out").rglob("OwnParallel-one.json")
    file.write_text(re.sub(r'"main_score": [\d.]+', '"main_score": 7', file.read_text(), count=1))
    assert 0 < told([server.openai], caplog)[0] < texts  # the run scores the whole task again
    monkeypatch.delenv("XALIGN_ENDPOINT_PRICE")
    caplog.clear()
    announce([server.openai], TASKS, Path("elsewhere"), store=open_store(), **OPTIONS)
    assert "The run sends" not in caplog.text
    assert not Path("elsewhere").exists()
