"""STS17 on made-up tracks in SemEval's layout: correlations, languages, and the sizes of the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import mteb
import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from xalign_models.errors import DataError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_tasks.sts17 import _TRACKS, STS17CrossLingual


def _revision(task):
    """The data revision that a task takes of the text at hand."""
    task.identify()
    return task.metadata.revision


@pytest.fixture
def tracks(workdir):
    root = workdir / "data" / "sts17"
    for folder in ("STS2017.eval.v1.1", "STS2017.gs"):
        (root / folder).mkdir(parents=True)
    for seed, (subset, track) in enumerate(_TRACKS.items()):
        rng = np.random.default_rng(seed)
        first, second = subset.split("-")
        rows = [f"{first} {rng.integers(10**6)}\t{second} {rng.integers(10**6)}\tsource\n" for _ in range(30)]
        (root / "STS2017.eval.v1.1" / f"STS.input.{track}.txt").write_text("".join(rows))
        gold = "".join(f"{score:.1f}\n" for score in rng.uniform(0, 5, 20))  # fewer, as in the Turkish track
        (root / "STS2017.gs" / f"STS.gs.{track}.txt").write_text(gold)
    return root


def test_correlations_are_scipys_and_each_side_has_its_language(tracks, planted, make_encoder, tmp_path):
    raw = planted(shift={"ar": np.ones(16), "tr": np.arange(16) / 9})
    encoder = make_encoder(raw)
    seen = set()
    inner = encoder.encode_texts

    def spy(texts, languages, *args):
        seen.update(zip((text.split()[0] for text in texts), languages, strict=True))
        return inner(texts, languages, *args)

    encoder.encode_texts = spy
    (result,) = mteb.evaluate(
        encoder,
        STS17CrossLingual(),
        cache=SafeResultCache(tmp_path),
        prediction_folder=tmp_path,
        show_progress_bar=False,
    ).task_results
    assert seen == {("ar", "arb-Arab"), ("en", "eng-Latn"), ("es", "spa-Latn"), ("tr", "tur-Latn")}
    scores = {one["hf_subset"]: one for one in result.scores["test"]}
    assert scores.keys() == _TRACKS.keys()
    for subset, track in _TRACKS.items():
        lines = (tracks / "STS2017.eval.v1.1" / f"STS.input.{track}.txt").read_text().splitlines()[:20]
        gold = [float(one) for one in (tracks / "STS2017.gs" / f"STS.gs.{track}.txt").read_text().split()]
        x, y = (raw.encode([line.split("\t")[side] for line in lines]) for side in (0, 1))
        cosine = np.einsum("ij,ij->i", x, y) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        assert scores[subset]["main_score"] == pytest.approx(spearmanr(cosine, gold)[0], abs=1e-5)
        assert scores[subset]["cosine_pearson"] == pytest.approx(pearsonr(cosine, gold)[0], abs=1e-5)
        with np.load(tmp_path / "STS17CrossLingual.npz") as items:
            assert items[subset].shape == (20,)
            assert items[subset].mean() == pytest.approx(spearmanr(cosine, gold)[0], abs=1e-6)


def test_the_revision_follows_the_files(tracks):
    revision = _revision(STS17CrossLingual())
    assert revision == _revision(STS17CrossLingual())
    (tracks / "STS2017.gs" / "STS.gs.track3.es-es.txt").write_text("1\n")
    assert _revision(STS17CrossLingual()) != revision


def test_refusals(tracks, workdir, monkeypatch):
    (tracks / "STS2017.eval.v1.1" / "STS.input.track3.es-es.txt").write_text("only one\n" * 30)
    with pytest.raises(DataError, match=r"track3.es-es.txt lacks two tab-separated sentences for some of the 20"):
        STS17CrossLingual().load_data()
    (tracks / "STS2017.gs" / "STS.gs.track3.es-es.txt").unlink()
    with pytest.raises(DataError, match=r"gs.track3.es-es.txt is missing"):
        STS17CrossLingual().load_data()
    monkeypatch.setenv("XALIGN_DATA", str(workdir / "cache"))
    (workdir / "cache").mkdir(exist_ok=True)
    with pytest.raises(DataError, match=r"XALIGN_DATA.*SemEval-2017"):
        STS17CrossLingual().load_data()


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "sts17").is_dir(), reason="XALIGN_DATA has no sts17"
)
def test_the_published_sizes():
    task = STS17CrossLingual()
    task.load_data()
    root = Path(os.environ["XALIGN_DATA"]) / "sts17"
    for subset, track in _TRACKS.items():
        rows = task.dataset[subset]["test"]
        assert len(rows) == 250, subset
        lines = (root / "STS2017.eval.v1.1" / f"STS.input.{track}.txt").read_text(encoding="utf-8").split("\n")
        assert rows["sentence1"][0] == lines[0].split("\t")[0]
        assert rows["sentence2"][249] == lines[249].split("\t")[1]
        assert 0 <= min(rows["score"]) < max(rows["score"]) <= 5
