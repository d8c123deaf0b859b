"""Numbers and figures of docs/atlas.md: the findings are those of the table, and every figure is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from docs.tools import atlas_figures
from docs.tools.atlas_figures import findings
from xalign_models import typology
from xalign_models.atlas import load_atlas


@pytest.fixture
def families(monkeypatch):
    codes = {language[:3] for column in load_atlas().columns for language in column.languages}
    content = {"families": {code: [f"F{ord(code[0]) % 5}"] for code in codes}}
    monkeypatch.setattr(typology, "load_uriel", lambda: content)


def test_findings_are_those_of_the_table():
    """By another way than the analysis: straight from the cells."""
    column = load_atlas().column("BelebeleRetrieval")
    others = [place for place, language in enumerate(column.languages) if language != "eng-Latn"]
    into, leaving = column.scores[:, others, 1], column.scores[:, others, 2]
    gain = (into - leaving).mean(axis=1)[(into + leaving).mean(axis=1) / 2 >= 0.5]
    found = findings()
    assert found["directions.models"] == len(gain)
    assert found["directions.median"] == pytest.approx(100 * np.median(gain))
    assert found["directions.positive"] == (gain > 0).sum()


def test_training_data_goes_with_the_gap_as_scipy_has_it():
    """By another way than the analysis: straight from the cells, with scipy's rank correlation."""
    from scipy.stats import spearmanr

    atlas = load_atlas()
    column = atlas.column("IN22GenBitextMining")
    others = [place for place, language in enumerate(column.languages) if language != "eng-Latn"]
    level = column.scores[:, others, 1:3].mean(axis=2)
    rare = np.array([atlas.low_resource(column.languages[place]) for place in others])
    seen, gaps = [], []
    for row, model in enumerate(column.models):
        declared = atlas.models[model].trained_on
        if declared is not None and level[row].mean() >= 0.5:
            seen.append(len(declared))
            gaps.append(100 * (level[row, ~rare].mean() - level[row, rare].mean()))
    found = findings()
    assert found["withdrawn.training.in22.n"] == len(seen)
    assert found["withdrawn.training.in22.rho"] == pytest.approx(spearmanr(seen, gaps).statistic)


def test_every_figure_is_drawn_with_axes_named(families):
    drawn = atlas_figures.draw()
    named = {"directions", "rare", "breadth", "families", "scripts", "ranks"}
    assert named == {*drawn}
    assert all(figure.axes for figure in drawn.values())
    assert drawn["families"].axes[0].get_title().startswith("F1 with English on NTREX, by family")


def test_a_planted_hub_is_found_and_strength_alone_is_none():
    from docs.tools.atlas_hubs import advantages
    from xalign_models.atlas.factors import score_of

    strength = np.linspace(-1, 1, 9)
    scores = score_of(strength[:, None] + strength)
    np.fill_diagonal(scores, np.nan)
    raw, residual = advantages(scores)
    assert raw[-1] > 10
    assert np.abs(residual).max() < 1e-6
    logits = strength[:, None] + strength
    logits[3] += 0.5
    logits[:, 3] += 0.5
    logits[3, 5:] += 0.5
    scores = score_of(logits)
    np.fill_diagonal(scores, np.nan)
    assert np.abs(advantages(scores)[1]).max() > 0.1
