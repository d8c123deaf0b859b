"""Sensitivity: variations that read the same text the same way change nothing, and planted changes are counted."""

from __future__ import annotations

import pandas as pd
import pytest

from xalign_models.analysis import Request
from xalign_models.models.building import load_encoder
from xalign_tasks.analyses import sensitivity

LANGUAGES = ("deu-Latn", "fra-Latn")


def test_one_text_at_a_time_changes_nothing_and_a_shorter_reading_is_the_shorter_models(flores, tiny_model):
    findings = sensitivity.analyse(Request((str(tiny_model),), flores, "cpu", rows=20, languages=LANGUAGES))
    table = findings.tables["changes"].set_index("variation")
    assert set(table.index) == {sensitivity.REGISTERED, sensitivity.SINGLE, *sensitivity.VARIATIONS}
    same = [sensitivity.REGISTERED, sensitivity.SINGLE, "no prompt", "64 tokens"]
    assert (table.loc[same, ["change", "largest"]] == 0).all(axis=None)
    folder = flores / "data" / "flores200_dataset" / "devtest"
    names = {"eng-Latn": "eng_Latn", "deu-Latn": "deu_Latn", "fra-Latn": "fra_Latn"}
    texts = {code: (folder / f"{name}.devtest").read_text().splitlines()[:20] for code, name in names.items()}
    prompted = load_encoder(str(tiny_model), device="cpu", prompts=(("default", "query: "),))
    expected = sensitivity.precision(prompted, texts).mean()
    assert table.loc["prompt 'query: '", "P@1"] == pytest.approx(expected)
    assert "order" not in findings.tables


def test_a_model_that_cannot_be_changed_is_named(flores, tiny_model, monkeypatch):
    monkeypatch.setattr(sensitivity, "VARIATIONS", {"layer 99": {"layer": 99}})
    findings = sensitivity.analyse(Request((str(tiny_model),), flores, "cpu", rows=10, languages=LANGUAGES))
    assert len(findings.tables["changes"]) == 2
    assert "layer 99: not measured." in findings.notes[0]


def test_the_largest_change_and_the_pairs_that_change_places_are_found():
    before = pd.Series({"deu-Latn": 90.0, "fra-Latn": 80.0})
    after = pd.Series({"deu-Latn": 91.0, "fra-Latn": 60.0})
    first = sensitivity.changes({sensitivity.REGISTERED: before, "short": after}).assign(model="a")
    assert first.loc[1, ["P@1", "change", "largest", "language"]].tolist() == [75.5, -9.5, -20.0, "fra-Latn"]
    second = sensitivity.changes({sensitivity.REGISTERED: before - 5, "short": before - 5}).assign(model="b")
    pairs = sensitivity.order(pd.concat([first, second]))
    assert pairs.to_dict("records") == [{"variation": "short", "pairs": 1, "changed places": 1, "which": "a and b"}]
