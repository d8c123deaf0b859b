"""Choices by seed: one a seed, on the same text, and what was tried beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import ModelError
from xalign_models.recommend.candidates import Candidate
from xalign_models.recommend.judging import recommend
from xalign_tasks.analyses import choices

TRIED = (Candidate("centered"), Candidate("procrustes"))


@pytest.fixture(autouse=True)
def _corpora(workdir: Path, write_text: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The analysis reads text of the user's own in place of the published corpora."""
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "text", 20)))
    monkeypatch.setattr(choices, "CORPORA", ("own",))


def test_each_seed_has_one_choice(monkeypatch):
    rng = np.random.default_rng(0)
    content = rng.standard_normal((300, 16))
    pair = (content + rng.standard_normal(content.shape) + 3.0, content)
    asked = []

    def planted(**request):
        asked.append(request)
        return recommend({"deu-Latn": pair}, "eng-Latn", TRIED, request["seed"])

    monkeypatch.setattr(choices, "recommend", planted)
    request = Request(models=("all-MiniLM-L6-v2",), rows=7, languages=("fra-Latn",))
    table = choices.analyse(request).tables["choices"]
    assert [(call["seed"], call["limit"], call["languages"]) for call in asked] == [
        (seed, 7, ("fra-Latn",)) for seed in range(choices.SEEDS)
    ]
    assert set(table["model"]) == {"xalign/plain__all-MiniLM-L6-v2"}
    assert (table.groupby("seed").size() == 1 + len(TRIED)).all()
    assert (table.groupby("seed")["chosen"].sum() == 1).all()
    assert set(table[table["chosen"]]["alignment"]) == {"centered"}
    assert (table[table["chosen"]]["losses"] == 0).all()


def test_a_model_that_is_aligned_is_refused():
    with pytest.raises(ModelError, match="aligned already"):
        choices.analyse(Request(models=("centered__all-MiniLM-L6-v2",)))
