"""The ready map is fitted on no text of its test."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.models.building import load_encoder
from xalign_models.paths import data_dir
from xalign_tasks.analyses import ready_map
from xalign_tasks.analyses.ready_map import fingerprint, fit_texts, scores, sides
from xalign_tasks.lareqa.reader import Side

TEST = Side({"1": "Who wrote the book (twice)?"}, ["He wrote it."], {"1": 0}, ["He wrote it."])


def test_planted_texts_of_the_test_are_left_out(workdir):
    data = workdir / "data"
    with pytest.raises(DataError, match="squad_nqg"):
        fit_texts(TEST)
    for name, lines in {
        "squad_nqg/src-test.txt": "he wrote it .\nshe read it .\nshe read it .",
        "squad_nqg/tgt-test.txt": "who wrote the book -lrb- twice -rrb- ?\nwho read it ?\nwho ?",
        "wikitext2/valid.txt": "= He wrote it . =\n She and he read it aloud . He wrote it .",
        "wikitext2/test.txt": "",
        "ntrex/NTREX-128/newstest2019-src.eng.txt": "She read it\nHe wrote it!",
        "ntrex/NTREX-128/newstest2019-ref.deu.txt": "Sie las es\nEr schrieb es!",
    }.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(f"{lines}\n")
    texts, removed = fit_texts(TEST)
    assert sorted(texts) == ["She and he read it aloud.", "She read it", "she read it.", "who read it?", "who?"]
    assert removed == 3


def test_case_spaces_and_brackets_do_not_hide_a_text():
    assert fingerprint("Who (he)?") == fingerprint("who -lrb- he -rrb- ?")
    assert fingerprint("Who?") != fingerprint("Whom?")


def test_recall_and_precision_by_hand():
    ranks = {"deu-Latn": np.array([1, 2, 12]), "spa-Latn": np.array([1, 1, 10])}
    plain = {"deu-Latn": np.array([1, 11, 12]), "spa-Latn": np.array([1, 12, 20])}
    found = scores(ranks, plain)
    assert found["recall@10"] == pytest.approx(100 * 5 / 6)
    assert found["P@1"] == pytest.approx(100 * 3 / 6)
    assert found["P@1 low"] < found["P@1"] < found["P@1 high"]
    assert found["recall@10 gain low"] < 100 * 3 / 6 < found["recall@10 gain high"]
    same = scores(ranks, ranks)
    assert same["P@1 gain low"] == -same["P@1 gain high"] < 0  # three questions show no equality
    assert scores(ranks) == {name: found[name] for name in ("recall@10", "P@1")}


def test_text_and_models_are_named(monkeypatch, tiny_model, made_up_tasks):
    side = Side({"1": "w1 w2", "2": "w3"}, ["w1", "w3 w4"], {"1": 0, "2": 1}, ["w1", "w3 w4"])
    settings = {"queries": "one", "index": "another"}
    maps = SimpleNamespace(settings=settings, transform=lambda rows, code: rows)
    monkeypatch.setattr(ready_map, "sides", lambda: {ENGLISH: side, "deu-Latn": side})
    monkeypatch.setattr(ready_map, "load_map", lambda name: maps)
    monkeypatch.setattr(ready_map, "fit_texts", lambda test: ([], 0))
    monkeypatch.setattr(Request, "load", lambda self, name: load_encoder(str(tiny_model), device="cpu"))
    found = ready_map.analyse(Request())
    assert (found.data, found.models) == ({"XQuAD-R": "1"}, ("one", "another"))


@pytest.mark.realdata
@pytest.mark.skipif("XALIGN_DATA" not in os.environ, reason="XALIGN_DATA is not set: it has SQuAD and XQuAD-R")
def test_the_texts_of_the_map_and_of_xquad_do_not_overlap(monkeypatch, capsys):
    english = sides()[ENGLISH]
    texts, removed = fit_texts(english)
    with capsys.disabled():
        sys.stdout.write(f"\n{removed} of the texts are XQuAD's own\n")
    tested = {fingerprint(text) for text in (*english.questions.values(), *english.candidates)}
    assert not {fingerprint(text) for text in texts} & tested
    assert len(texts) > 20_000
    files = data_dir() / "squad_nqg"
    dev = {fingerprint(text) for text in (files / "tgt-dev.txt").read_text("utf-8").splitlines()}
    questions = {fingerprint(text) for text in english.questions.values()}
    assert len(dev & questions) > 1000, "the digest finds XQuAD's questions where they are"
