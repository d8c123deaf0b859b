"""The analysis of published models: its tables have intervals."""

from __future__ import annotations

import pytest

from xalign_models import typology
from xalign_models.analysis import Request
from xalign_models.atlas import load_atlas
from xalign_models.atlas.statistics import levels, multilingual, summarise
from xalign_models.plugins import ANALYSES


@pytest.fixture
def families(monkeypatch):
    codes = {language[:3] for column in load_atlas().columns for language in column.languages}
    monkeypatch.setattr(
        typology, "load_uriel", lambda: {"families": {code: [f"F{ord(code[0]) % 5}"] for code in codes}}
    )


def test_multilingual_models_have_half_of_the_score():
    of = levels(load_atlas(), load_atlas().column("IN22GenBitextMining"))
    assert (summarise(of)["level"][multilingual(of)] >= 0.5).all()
    assert (summarise(of)["level"][~multilingual(of)] < 0.5).all()


@pytest.mark.slow
def test_tables_have_intervals_and_groups(families):
    found = ANALYSES["atlas"](Request())
    statistics = found.tables["statistics"]
    level = statistics[statistics["statistic"] == "level"]
    assert (level["low"] <= level["value"]).all()
    assert (level["value"] <= level["high"]).all()
    associations = found.tables["associations"]
    assert (
        (associations["low"] <= associations["rho"]) & (associations["rho"] <= associations["high"])
    ).mean() > 0.95  # of few models the middle of a resampled correlation is off
    for _, ranks in found.tables["ranks"].groupby("column"):
        assert ranks["rank"].tolist() == list(range(1, len(ranks) + 1))
        assert ranks["group"].is_monotonic_increasing
    assert any("CC0-1.0" in note for note in found.notes)
    assert {*found.figures} == {"families", "scripts", "ranks"}
