"""Training pairs: which rows, which sides, which direction."""

from __future__ import annotations

import pytest

from xalign_models.corpora import Corpus
from xalign_models.errors import DataError, LanguageError
from xalign_models.training.contrastive import training
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.contrastive.training import training_pairs

CODES = ("arb-Arab", "eng-Latn", "spa-Latn")


def corpus(kind="parallel", empty=()):
    def rows(language):
        side = ["" if (language, i) in empty else f"{language} {i}" for i in range(5)]
        return (side, [f"English of {one}" for one in side]) if kind == "pairs" else side

    return Corpus("made-up", kind, (), CODES, rows, str)


def pairs(samples, found=None, **fields):
    return [
        tuple((side.lang, side.text) for side in pair)
        for pair in training_pairs(found or corpus(), ContrastiveConfig(samples=samples, **fields))[0]
    ]


def test_both_directions_of_the_first_rows_per_language():
    expected = []
    for code in ("arb-Arab", "spa-Latn"):
        there = [(("eng-Latn", f"eng-Latn {i}"), (code, f"{code} {i}")) for i in range(2)]
        expected += there + [(positive, anchor) for anchor, positive in there]
    assert pairs(2) == expected


def test_pairs_have_an_english_side_of_their_own():
    found = pairs(1, corpus("pairs"), languages=("spa-Latn",))
    assert found[0] == (("eng-Latn", "English of spa-Latn 0"), ("spa-Latn", "spa-Latn 0"))


def test_another_pivot():
    assert pairs(1, pivot="arb-Arab", languages=("spa-Latn",))[0] == (
        ("arb-Arab", "arb-Arab 0"),
        ("spa-Latn", "spa-Latn 0"),
    )
    with pytest.raises(DataError, match="pairs every language with English, so arb-Arab cannot be its pivot"):
        pairs(1, corpus("pairs"), pivot="arb-Arab", languages=("spa-Latn",))


def test_rows_with_an_empty_side_do_not_count():
    found = pairs(3, corpus(empty=(("spa-Latn", 1), ("eng-Latn", 2))), languages=("spa-Latn",))
    assert [anchor[1] for anchor, _ in found[:3]] == ["eng-Latn 0", "eng-Latn 3", "eng-Latn 4"]


def test_more_rows_than_there_are():
    with pytest.raises(DataError, match="samples 6: corpus 'made-up' has 5 rows of arb-Arab with eng-Latn"):
        pairs(6)


def test_what_the_corpus_does_not_have():
    with pytest.raises(LanguageError, match="deu-Latn"):
        pairs(1, languages=("deu-Latn",))
    with pytest.raises(DataError, match="no translations"):
        pairs(1, corpus("monolingual"))


def test_held_out_rows_share_no_text_with_a_training_row_of_any_language():
    empty = [
        ("spa-Latn", 0),
        ("spa-Latn", 1),
    ]  # Spanish trains on rows 2 and 3, of which Arabic would hold out the English
    config = ContrastiveConfig(samples=2)
    trained, held_out = training_pairs(corpus(empty=empty), config)
    assert not {text for row in trained for text in row} & {text for row in held_out for text in row}
    assert [row[0].text for row in held_out] == ["arb-Arab 4", "spa-Latn 4"]


def test_many_languages_hold_out_a_row_each(monkeypatch):
    monkeypatch.setattr(training, "MEASURED", 1)
    _, held_out = training_pairs(corpus(), ContrastiveConfig(samples=2))
    assert [text.lang for text, _ in held_out] == ["arb-Arab", "spa-Latn"]
