"""Tatoeba36 on a made-up set in LASER's layout, and the sizes of the real one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from xalign_models.corpora import load
from xalign_models.languages import canonical
from xalign_tasks.tatoeba36 import LANGUAGES, Tatoeba36

ODD = {"jav": 205, "kat": 746, "kaz": 575, "mal": 687, "swh": 390, "tam": 307, "tel": 234, "tha": 548}


def write(root, codes, rows):
    folder = root / "data" / "tatoeba" / "v1"
    folder.mkdir(parents=True)
    for code, meanings in zip(codes, rows, strict=True):
        for side in (code, "eng"):
            (folder / f"tatoeba.{code}-eng.{side}").write_text("".join(f"{side} {one}\n" for one in meanings))


def test_each_language_has_its_own_english_and_direction(workdir, planted, make_encoder):
    write(workdir, ("deu", "cmn"), (range(30), range(100, 120)))
    turned = {"cmn": np.linalg.qr(np.random.default_rng(0).standard_normal((16, 16))).Q}
    raw = planted(turn=turned)
    task = Tatoeba36()
    found = task.evaluate(
        make_encoder(raw),
        encode_kwargs={},
        subsets_to_run=["deu_Latn-eng_Latn", "eng_Latn-deu_Latn", "eng_Latn-zho_Hans"],
        prediction_folder=workdir,
    )
    assert found["deu_Latn-eng_Latn"]["main_score"] == found["eng_Latn-deu_Latn"]["main_score"] == 1
    assert set(found) == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn", "eng_Latn-zho_Hans"}
    assert raw.encoded["eng 110"] == raw.encoded["eng 10"] == 1
    # the English sentences are the queries and the Chinese the candidates
    english, chinese = (raw.encode([f"{side} {i}" for i in range(100, 120)]) for side in ("eng", "cmn"))
    english, chinese = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (english, chinese))
    nearest = (english @ chinese.T).argmax(axis=1)
    assert found["eng_Latn-zho_Hans"]["precision_at_1"] == pytest.approx(np.mean(nearest == np.arange(20)))
    with np.load(workdir / "Tatoeba36.npz") as items:
        assert items["eng_Latn-zho_Hans"].shape == (20,)


def test_36_languages_in_both_directions_whatever_the_run_chooses():
    assert len(LANGUAGES) == len(set(LANGUAGES)) == 36
    assert len(Tatoeba36.metadata.eval_langs) == 72
    assert not Tatoeba36.narrows


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "tatoeba").is_dir(), reason="XALIGN_DATA has no tatoeba"
)
def test_the_published_sizes():
    corpus = load("tatoeba", local=True)
    odd = {canonical(code): size for code, size in ODD.items()}
    for language in LANGUAGES:
        side, english = corpus.pair(language)
        assert len(side) == len(english) == odd.get(language, 1000), language


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "flores200_dataset").is_dir(),
    reason="XALIGN_DATA has no flores200_dataset",
)
def test_flores_has_1012_rows_in_every_language():
    from xalign_tasks.parallel import FloresPrecision

    corpus = load("flores", local=True)
    assert {code for pair in FloresPrecision.metadata.eval_langs.values() for code in pair} == set(corpus.languages)
    assert {len(corpus.texts(language)) for language in corpus.languages} == {1012}
