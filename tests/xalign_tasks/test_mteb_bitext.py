"""mteb's NTREX task on the publisher's text gives mteb's scores."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from xalign_models import assets, corpora
from xalign_models.atlas import KINDS, load_atlas
from xalign_models.evaluation.run import run
from xalign_tasks.facts import CODES
from xalign_tasks.mteb_bitext import NTREXBitextMining

PAIRS = ("deu_Latn-eng_Latn", "eng_Latn-deu_Latn")


def test_every_subset_names_languages_of_the_text() -> None:
    task = NTREXBitextMining()
    languages = {task.language(code) for subset in task.hf_subsets for code in subset.split("-")}
    assert languages == {*CODES["ntrex"]} - {"est-Latn"}  # mteb leaves Estonian out


def test_its_f1_is_that_of_mtebs_own_evaluation(make_encoder, planted, workdir, monkeypatch) -> None:
    """Vectors of noise about the meanings, so that several queries share a nearest candidate."""
    languages, rng = ("deu-Latn", "eng-Latn"), np.random.default_rng(0)
    vectors = {language: rng.normal(size=(300, 8)) + np.linspace(0, 3, 300)[:, None] for language in languages}
    vectors["eng-Latn"] = vectors["deu-Latn"] + rng.normal(size=(300, 8))
    monkeypatch.setattr(corpora, "load", lambda *_, **__: FakeCorpus())
    monkeypatch.setattr(NTREXBitextMining, "embed", lambda self, _, texts, language, *__: vectors[language])
    task = NTREXBitextMining()
    found = task.evaluate(None, subsets_to_run=list(PAIRS), encode_kwargs={})
    for subset in PAIRS:
        a, b = (vectors[f"{code[:3]}-Latn"] for code in subset.split("-"))
        a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
        nearest = [{"corpus_id": int(place)} for place in (a @ b.T).argmax(axis=1)]
        expected = task._compute_metrics(nearest, [(place, place) for place in range(300)])
        assert 0.05 < expected["f1"] < 0.95
        assert found[subset]["main_score"] == pytest.approx(expected["f1"])
        assert found[subset]["precision_at_1"] == pytest.approx(expected["accuracy"])


class FakeCorpus:
    """Three hundred lines in every language."""

    def parallel(self, languages):
        return {language: [str(line) for line in range(300)] for language in languages}

    def fingerprint(self) -> str:
        return "0" * 64


@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "ntrex").is_dir(), reason="XALIGN_DATA has no ntrex"
)
@pytest.mark.slow
@pytest.mark.realdata
def test_a_published_model_has_its_published_score(tmp_path: Path) -> None:
    """All-MiniLM-L6-v2 is at hand in its published precision, so text and metric are the published ones."""
    if assets.where("all-minilm-l6-v2") is None:
        pytest.skip("the asset all-minilm-l6-v2 is not installed: xalign assets install all-minilm-l6-v2")
    (outcome,) = run(["all-MiniLM-L6-v2"], ["NTREXBitextMining"], tmp_path, languages=("deu-Latn", "eng-Latn"))
    found = {entry["hf_subset"]: entry["main_score"] for entry in outcome.result.scores["test"]}
    column = load_atlas().column("NTREXBitextMining", "ed9a440")
    row, german = column.row["sentence-transformers/all-MiniLM-L6-v2"], column.languages.index("deu-Latn")
    for subset, kind in zip(PAIRS, ("english_from", "english_into"), strict=True):
        assert found[subset] == pytest.approx(column.scores[row, german, KINDS.index(kind)], abs=0.6e-4)
