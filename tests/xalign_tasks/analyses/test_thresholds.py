"""Recall and false positives, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_models.models.encoder import XAlignEncoder
from xalign_tasks.analyses import thresholds
from xalign_tasks.analyses.thresholds import rates
from xalign_tasks.lareqa.reader import Side


@pytest.fixture
def asked(monkeypatch, tiny_model):
    """Makes the request of a model on 30 questions, each with a paragraph of two sentences, in three languages."""
    numbers = range(30)
    questions, answers = {f"q{i}": f"w{i} w{i + 1}" for i in numbers}, {f"q{i}": 2 * i for i in numbers}
    sentences = [text for i in numbers for text in (f"w{i} w{i + 2}", f"w{i + 3} w{2 * i}")]
    side = Side(questions, sentences, answers, [f"p{i // 2}" for i in range(60)])
    monkeypatch.setattr(thresholds, "sides", lambda: dict.fromkeys(("deu-Latn", "eng-Latn", "fra-Latn"), side))
    return lambda **options: Request((str(tiny_model),), device="cpu", **options)


def test_rows_and_languages_are_honoured(asked, monkeypatch):
    counts = []
    monkeypatch.setattr(thresholds, "rates", lambda above, gold: counts.append(len(gold)) or {})
    table = thresholds.analyse(asked(rows=20, languages=("deu-Latn",))).tables["pairs"]
    assert {*table["query"]} == {*table["document"]} == {"deu-Latn", "eng-Latn"}
    assert {*counts} == {10}
    assert {*thresholds.analyse(asked()).tables["pairs"]["query"]} == {"deu-Latn", "eng-Latn", "fra-Latn"}
    assert counts[-1] == 15


def test_model_and_text_are_named(asked, made_up_tasks):
    found = thresholds.analyse(asked(languages=("deu-Latn",)))
    assert {*found.tables["pairs"]["model"]} == {"xalign/plain__tiny"}
    assert found.data == {"XQuAD-R": "1"}


@pytest.mark.parametrize("name", ["document", "passage", "default"])
def test_each_side_is_encoded_as_the_model_encodes_it(asked, monkeypatch, name):
    load = Request.load

    def prompted(request, model):
        encoder = load(request, model)
        encoder.prompts = {"query": "ask: ", name: "tell: "}
        return encoder

    monkeypatch.setattr(Request, "load", prompted)
    seen, encode = set(), XAlignEncoder.encode_texts

    def noted(self, texts, languages, prompt=None, progress=None, side=""):
        seen.add((*{*languages}, prompt, side))
        return encode(self, texts, languages, prompt, progress, side)

    monkeypatch.setattr(XAlignEncoder, "encode_texts", noted)
    thresholds.analyse(asked(languages=("deu-Latn",)))
    of_sides = (("ask: ", "query"), ("tell: ", "document"))
    assert seen == {(code, *of_side) for code in ("deu-Latn", "eng-Latn") for of_side in of_sides}


def test_too_few_rows_and_unknown_languages_are_refused(asked):
    for rows in (1, 3):
        with pytest.raises(DataError, match="--rows: at least 4"):
            thresholds.analyse(asked(rows=rows))
    with pytest.raises(LanguageError, match="XQuAD-R has no jpn-Jpan; it has deu-Latn"):
        thresholds.analyse(asked(languages=("jpn-Jpan",)))


def test_questions_with_one_answer_sentence_are_no_false_positives_of_each_other():
    above = np.array([[True, True, False], [False, True, True], [False, False, False]])
    gold = np.array([4, 4, 7])  # the first two questions share their answer
    assert rates(above, gold) == {"recall": pytest.approx(60), "false positives": pytest.approx(25)}
