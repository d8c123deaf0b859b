"""The share of retrieval that is kept: all of it between two turns of one space, none of it between strangers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import ModelError
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses import migration

LANGUAGES = ("deu-Latn", "eng-Latn")


@pytest.mark.slow
def test_a_turned_space_keeps_all_and_a_stranger_nothing(monkeypatch):
    monkeypatch.setattr(migration, "HELD", 40)
    monkeypatch.setattr(migration, "PAIRS", (100, 10_000))
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((240, 12))
    new = {language: normalise(meaning + 0.3 * rng.standard_normal(meaning.shape)) for language in LANGUAGES}
    turn = np.linalg.qr(rng.standard_normal((12, 12))).Q
    new[migration.MORE] = normalise(rng.standard_normal((300, 12)))
    old = {language: normalise(rows @ turn) for language, rows in new.items()}
    strange = {language: normalise(rng.standard_normal(rows.shape)) for language, rows in new.items()}
    rows = migration.kept(old, new, LANGUAGES, {"index": "a", "queries": "b"})
    counts = [row["pairs"] for row in rows if row["method"] == "affine" and row["language"] == "eng-Latn"]
    assert counts == [100, 2 * 200, 100, 200 + 300]
    unmapped = [row for row in rows if row["method"] == "no map"]
    assert [row["language"] for row in unmapped] == list(LANGUAGES)
    assert all(row["mapped"] < 20 for row in unmapped)
    for row in rows[len(unmapped) :]:
        assert row["kept"] == pytest.approx(100, abs=6)
        assert row["new"] == pytest.approx(row["old"])
    assert all(row["mapped"] < 20 for row in migration.kept(strange, new, LANGUAGES, {}))
    same = migration.kept(new, new, LANGUAGES, {})[: len(LANGUAGES)]
    assert all(row["method"] == "no map" and row["kept"] == 100 for row in same)
    narrow = {language: normalise(rows[:, :8]) for language, rows in old.items()}
    assert all(row["method"] != "no map" for row in migration.kept(narrow, new, LANGUAGES, {}))


def test_models_in_folders_have_their_last_names(monkeypatch, tiny_model):
    corpus = SimpleNamespace(parallel=lambda codes: dict.fromkeys(codes, ["w1"] * 1000), fingerprint=lambda *_: "1")
    monkeypatch.setattr(migration.corpora, "load", lambda name: corpus)
    monkeypatch.setattr(migration, "_more_english", lambda *_: [])
    monkeypatch.setattr(migration, "embed", lambda *_: None)
    monkeypatch.setattr(migration, "kept", lambda old, new, languages, facts: [facts])
    monkeypatch.setattr(Request, "load", lambda *_: None)
    table = migration.analyse(Request((str(tiny_model), "all-MiniLM-L6-v2"))).tables["migration"]
    assert table["index"].tolist() == ["tiny", "all-MiniLM-L6-v2"]
    assert table["queries"].tolist() == ["all-MiniLM-L6-v2", "tiny"]


def test_one_model_has_nowhere_to_go():
    with pytest.raises(ModelError, match="name two models"):
        migration.analyse(Request(models=("all-MiniLM-L6-v2",)))
