"""The STS benchmark on made-up rows: correlations are scipy's, sides have their languages, rows must align."""

from __future__ import annotations

import csv
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1
from xalign_tasks.stsb import CODES, STSBCrossLingual, STSBSameLanguage

ROWS = 25


@pytest.fixture
def texts(workdir):
    folder = workdir / "data" / "stsb_multi_mt" / "data"
    folder.mkdir(parents=True)
    gold = np.random.default_rng(1).uniform(0, 5, ROWS).round(1)
    for code in CODES:
        with (folder / f"stsb-{code}-test.csv").open("w", newline="") as file:
            csv.writer(file).writerows((f"{code} {i}", f"{code} {100 + i}", score) for i, score in enumerate(gold))
    return folder


@pytest.mark.parametrize("kind", [STSBCrossLingual, STSBSameLanguage])
def test_correlations_are_scipys_and_every_side_is_encoded_once(kind, texts, planted, make_encoder, tmp_path):
    raw = planted(shift={"de": np.ones(16), "ru": np.arange(16) / 9})
    encoder, seen = make_encoder(raw), set()
    inner = encoder.encode_texts

    def spy(rows, languages, *args):
        seen.update(zip((text.split()[0] for text in rows), languages, strict=True))
        return inner(rows, languages, *args)

    encoder.encode_texts = spy
    found = kind().evaluate(encoder, encode_kwargs={}, prediction_folder=tmp_path)
    pairs = list(combinations(CODES, 2)) if kind is STSBCrossLingual else [(code, code) for code in CODES]
    assert found.keys() == {f"{a}-{b}" for a, b in pairs}
    assert seen == {(code, from_iso639_1(code)) for code in CODES}
    assert set(raw.encoded.values()) == {1}
    gold = [float(row[2]) for row in csv.reader((texts / "stsb-en-test.csv").open())]
    for a, b in pairs:
        x, y = raw.encode([f"{a} {i}" for i in range(ROWS)]), raw.encode([f"{b} {100 + i}" for i in range(ROWS)])
        cosine = np.einsum("ij,ij->i", x, y) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        scores = found[f"{a}-{b}"]
        assert scores["main_score"] == scores["cosine_spearman"] == pytest.approx(spearmanr(cosine, gold)[0], abs=1e-5)
        assert scores["cosine_pearson"] == pytest.approx(pearsonr(cosine, gold)[0], abs=1e-5)
        with np.load(tmp_path / f"{kind.metadata.name}.npz") as items:
            assert items[f"{a}-{b}"].shape == (ROWS,)
            assert items[f"{a}-{b}"].mean() == pytest.approx(scores["main_score"], abs=1e-5)


def test_refusals(texts, planted, make_encoder):
    path = texts / "stsb-ja-test.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]))
    with pytest.raises(DataError, match="STSBCrossLingual: the human scores of en-ja differ; the rows must align"):
        task = STSBCrossLingual()
        task.hf_subsets = ["en-ja"]
        task.evaluate(make_encoder(planted()), encode_kwargs={})
    path.write_text("ja 1,ja 2\n")
    with pytest.raises(DataError, match=r"stsb-ja-test.csv does not have two sentences and a score in each row"):
        STSBSameLanguage().load_data()
    path.unlink()
    with pytest.raises(DataError, match=r"stsb-ja-test.csv is missing; get it from github.com/PhilipMay"):
        STSBSameLanguage().load_data()


def test_without_data_it_says_what_is_missing(workdir):
    with pytest.raises(DataError, match=r"set XALIGN_DATA to a folder that has stsb_multi_mt/data/"):
        STSBCrossLingual().load_data()


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "stsb_multi_mt").is_dir(), reason="XALIGN_DATA has no stsb_multi_mt"
)
def test_the_published_rows():
    task = STSBCrossLingual()
    task.load_data()
    assert len(task.dataset) == 9
    scores = {tuple(rows[2]) for rows in task.dataset.values()}
    assert len(scores) == 1
    assert len(scores.pop()) == 1379
    original = Path(os.environ["XALIGN_DATA"]) / "stsbenchmark_en" / "sts-test.csv"
    rows = [line.split("\t") for line in original.read_text(encoding="utf-8").splitlines()]
    assert [float(row[4]) for row in rows] == task.dataset["eng-Latn"][2]
    same = [row[5] == text for row, text in zip(rows, task.dataset["eng-Latn"][0], strict=True)]
    assert np.mean(same) > 0.9  # the original, up to quotation marks
