"""The space of a backbone and the text that is laid out in it."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import LanguageError, ModelError
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses import spaces

CODES = ("deu-Latn", "fra-Latn")


@pytest.fixture
def request_(workdir, tiny_model, write_tatoeba, write_fit_text):
    write_tatoeba(workdir, 12)
    write_fit_text(workdir, 15)
    return Request((str(tiny_model),), workdir, "cpu", languages=CODES)


def test_lsar_is_fitted_on_the_fit_text_and_the_test_text_is_laid_out(request_):
    space = spaces.open_space(request_, request_.models[0])
    tatoeba = spaces.open_tatoeba(request_)
    assert space.lsar.rank_ == 4  # five languages
    vectors = spaces.by_language(space, tatoeba)
    assert list(vectors) == ["eng-Latn", *CODES]
    assert {rows.shape for rows in vectors.values()} == {(12, 16)}  # English: no more than the others
    side, _ = tatoeba.corpus.pair("deu-Latn")
    np.testing.assert_allclose(
        normalise(vectors["deu-Latn"]), request_.load(request_.models[0]).encode_texts(side, [None] * 12), atol=1e-6
    )
    (note,) = spaces.describe(space, tatoeba)
    assert "LSAR of rank 4, fitted on 5 languages (lingua and newstest" in note


def test_rows_are_taken_from_the_top(request_):
    tatoeba = spaces.Tatoeba(spaces.open_tatoeba(request_).corpus, CODES, 5)
    assert [len(side) for _, side, _ in tatoeba.pairs()] == [5, 5]
    assert tatoeba.title == "Tatoeba, mean of 2 languages, first 5 sentences of each"


def test_languages_that_lsar_was_not_fitted_on_are_noted(request_, workdir, write_tatoeba):
    write_tatoeba(workdir, 12, ["deu", "jpn"])
    asked = Request(request_.models, workdir, "cpu", languages=("deu-Latn", "jpn-Jpan"))
    notes = spaces.describe(spaces.open_space(asked, asked.models[0]), spaces.open_tatoeba(asked))
    assert notes[1] == "Not among the languages that LSAR was fitted on: Japanese."


def test_bad_requests_say_what_there_is(request_, workdir):
    with pytest.raises(LanguageError, match="Tatoeba's test has no jpn-Jpan; it has deu-Latn"):
        spaces.open_tatoeba(Request(languages=("jpn-Jpan",)))
    with pytest.raises(LanguageError, match="--languages: name at least one language besides English"):
        spaces.open_tatoeba(Request(languages=("eng-Latn",)))
    with pytest.raises(ModelError, match="has the alignment procrustes; name a backbone or a model with lsar"):
        spaces.lsar_spec("xalign/procrustes__multilingual-e5-small-q4")
    assert spaces.lsar_spec("xalign/lsar__multilingual-e5-small-q4__gettext")[1].corpora == ("gettext:fit",)


def test_accuracy_is_that_of_the_nearest_neighbour():
    rng = np.random.default_rng(0)
    english = rng.standard_normal((50, 8)).astype(np.float32)
    side = english + rng.standard_normal((50, 8)).astype(np.float32)
    cosines = normalise(english) @ normalise(side).T
    expected = [100 * (cosines.argmax(axis) == np.arange(50)).mean() for axis in (1, 0)]
    assert spaces.accuracy(side, english) == pytest.approx(expected)
    assert 10 < expected[0] != expected[1] < 100


def test_published_averages_are_those_of_the_methods():
    table = spaces.published_accuracy().set_index(["model", "method"])["accuracy"]
    assert table["mBERT", "Original"] == 37.53
    assert {method.partition("(")[0] for _, method in table.index} == {"Original", "Centered", "LSAR", "LIR"}
