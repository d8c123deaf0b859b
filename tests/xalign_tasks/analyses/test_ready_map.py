"""The ready map is fitted on no text of its test."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_tasks.analyses import ready_map
from xalign_tasks.analyses.ready_map import fingerprint, fit_texts, scores, sides
from xalign_tasks.lareqa.reader import Side

TEST = Side({"1": "Who wrote the book (twice)?"}, ["He wrote it."], {"1": 0}, ["He wrote it."])


def test_planted_texts_of_the_test_are_left_out(workdir):
    folder = workdir / "data" / "squad_nqg"
    with pytest.raises(DataError, match="squad_nqg"):
        fit_texts(TEST)
    folder.mkdir(parents=True)
    (folder / "src-test.txt").write_text("he wrote it . \nshe read it .\nshe read it .\n")
    (folder / "tgt-test.txt").write_text("who wrote the book -lrb- twice -rrb- ?\nwho read it ?\n")
    assert fit_texts(TEST) == (["she read it .", "who read it ?"], 2)


def test_case_spaces_and_brackets_do_not_hide_a_text():
    assert fingerprint("Who (he)?") == fingerprint("who -lrb- he -rrb- ?")
    assert fingerprint("Who?") != fingerprint("Whom?")


def test_recall_and_precision_by_hand():
    index = np.eye(12)
    queries = np.stack([index[0], 0.5 * index[0] + index[1], -index[2]])
    assert scores(queries, index, np.array([0, 0, 2])) == {
        "recall@10": pytest.approx(200 / 3),
        "P@1": pytest.approx(100 / 3),
    }


@pytest.mark.realdata
@pytest.mark.skipif("XALIGN_DATA" not in os.environ, reason="XALIGN_DATA is not set: it has SQuAD and XQuAD-R")
def test_the_texts_of_the_map_and_of_xquad_do_not_overlap(monkeypatch, capsys):
    english = sides()[ENGLISH]
    texts, removed = fit_texts(english)
    with capsys.disabled():
        sys.stdout.write(f"\n{removed} of SQuAD's test texts are XQuAD's own\n")
    tested = {fingerprint(text) for text in (*english.questions.values(), *english.candidates)}
    assert not {fingerprint(text) for text in texts} & tested
    assert len(texts) == 2 * ready_map.TEXTS
    files = ready_map.data_dir() / "squad_nqg"
    dev = {fingerprint(text) for text in (files / "tgt-dev.txt").read_text("utf-8").splitlines()}
    questions = {fingerprint(text) for text in english.questions.values()}
    assert len(dev & questions) > 1000, "the digest finds XQuAD's questions where they are"
