"""XNLI on made-up pairs: the head is scikit-learn's, both ways, no premise in both halves, languages kept apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from xalign_models.errors import DataError
from xalign_tasks.zero_shot import XNLIZeroShot
from xalign_tasks.zero_shot.xnli import LANGUAGES, pair_features, second_half

PREMISES, FORMS = 90, 3
LABELS = ("contradiction", "entailment", "neutral")
TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((16, 16))).Q


def write(folder, code):
    """An entailed hypothesis means what its premise does, a contradictory one what premise 0 does, others anything."""
    rows = [
        f"{code} {i}\t{code} {(i, 0, 5000 + i)[form]}\t{('entailment', 'contradiction', 'neutral')[form]}\n"
        for i in range(1, PREMISES + 1)
        for form in range(FORMS)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"dev-{code}.tsv").write_text("".join(rows))


@pytest.fixture
def xnli(workdir):
    folder = workdir / "data" / "xnli" / "dev"
    for code in LANGUAGES.values():
        write(folder, code)
    return folder


def evaluate(encoder, folder=None, **options):
    return XNLIZeroShot().evaluate(encoder, encode_kwargs={}, prediction_folder=folder, **options)


def test_the_head_is_scikit_learns_trained_on_the_other_half_in_english(xnli, planted, make_encoder, tmp_path):
    raw = planted(turn={"de": TURN})
    found = evaluate(make_encoder(raw), tmp_path)
    assert found.keys() == LANGUAGES.keys()
    assert len(raw.prompts) == 2 * len(LANGUAGES)  # each side once, English for training and test
    labels = np.array(
        [("entailment", "contradiction", "neutral")[form] for _ in range(PREMISES) for form in range(FORMS)]
    )
    place = np.repeat(np.arange(PREMISES), FORMS)

    def features(code):
        pairs = [line.split("\t")[:2] for line in (xnli / f"dev-{code}.tsv").read_text().splitlines()]
        u, v = (raw.encode([pair[side] for pair in pairs]).astype(float) for side in (0, 1))
        u, v = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (u, v))
        return np.hstack([u, v, abs(u - v), u * v])

    for language, code in LANGUAGES.items():
        predicted = np.empty_like(labels)
        for half in (0, 1):
            head = LogisticRegression(max_iter=5000).fit(features("en")[place % 2 != half], labels[place % 2 != half])
            predicted[place % 2 == half] = head.predict(features(code)[place % 2 == half])
        with np.load(tmp_path / "XNLIZeroShot.npz") as items:
            assert (items[language][:, 1] == labels).all()
            assert np.mean(items[language][:, 0] == predicted) > 0.99  # float32 beside float64
            accuracy = np.mean(items[language][:, 0] == labels)
        assert found[language]["main_score"] == found[language]["accuracy"] == accuracy
    assert found["eng-Latn"]["accuracy"] > 0.8
    assert found["eng-Latn"] == found["fra-Latn"] != found["deu-Latn"]  # which is turned away
    assert evaluate(make_encoder(raw)) == found


def test_a_premise_is_in_one_half():
    half = second_half(["a", "a", "b", "c", "a", "b", "d"])
    assert half.tolist() == [False, False, True, False, False, True, True]


def test_features_by_hand():
    u, v = np.array([[1.0, 0.0]], dtype=np.float32), np.array([[0.6, 0.8]], dtype=np.float32)
    assert pair_features(u, v)[0] == pytest.approx([1, 0, 0.6, 0.8, 0.4, 0.8, 0.6, 0])


def test_a_narrowed_run_reads_the_chosen_languages_and_english(xnli, planted, make_encoder):
    raw, task = planted(), XNLIZeroShot()
    task.hf_subsets = ["swh-Latn"]
    assert set(task.evaluate(make_encoder(raw), encode_kwargs={})) == {"swh-Latn"}
    assert {text.split()[0] for text in raw.encoded} == {"en", "sw"}


def test_refusals(xnli, planted, make_encoder, workdir, monkeypatch):
    path = xnli / "dev-sw.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[1:], lines[0]]))
    with pytest.raises(DataError, match="XNLI: the labels of swh-Latn differ from those of English"):
        evaluate(make_encoder(planted()))
    path.write_text("\n".join([*lines[:3], "a\tb"]))
    with pytest.raises(DataError, match=r"dev-sw.tsv, line 4: expected premise, hypothesis and label"):
        XNLIZeroShot().load_data()
    path.unlink()
    with pytest.raises(DataError, match=r"dev-sw.tsv is missing; get it from XTREME's XNLI"):
        XNLIZeroShot().load_data()
    monkeypatch.setenv("XALIGN_DATA", str(workdir))
    with pytest.raises(DataError, match=r"set XALIGN_DATA to a folder that has xnli/dev/dev-en.tsv"):
        XNLIZeroShot().load_data()


@pytest.mark.realdata
@pytest.mark.skipif(not (Path(os.environ.get("XALIGN_DATA", "-")) / "xnli").is_dir(), reason="XALIGN_DATA has no xnli")
def test_the_published_sizes():
    task = XNLIZeroShot()
    task.load_data()
    assert {len(rows[0]) for rows in task.dataset.values()} == {2490}
    labels = {tuple(rows[2]) for rows in task.dataset.values()}
    assert len(labels) == 1
    assert set(labels.pop()) == set(LABELS)
    assert 0.45 < second_half(task.dataset["eng-Latn"][0]).mean() < 0.55
