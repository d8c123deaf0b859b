"""Offsets between corpora: planted ones are found, those of a topic are not taken for a language's, text is refused."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_tasks.analyses import offset_stability
from xalign_tasks.analyses.offset_stability import HALVES, stability

RNG = np.random.default_rng(0)
OFFSETS = {
    "fixed": {corpus: np.eye(32)[0] for corpus in "abc"},
    "moved": dict(zip("abc", np.eye(32)[1:4], strict=True)),
}


def embed(rows, language):
    """``a 3``: row 3 of corpus a, with the offset that its language has there."""
    of_language = OFFSETS.get(language, {})
    return np.stack(
        [
            5 * of_language.get(row.split()[0], 0) + np.random.default_rng(list(row.encode())).standard_normal(32)
            for row in rows
        ]
    )


def test_an_offset_that_stays_and_one_that_moves():
    rows = {corpus: [f"{corpus} {i}" for i in range(400)] for corpus in "abc"}
    texts = {corpus: dict.fromkeys(OFFSETS, (rows[corpus], rows[corpus])) for corpus in "abc"}
    del texts["c"]["fixed"]
    frame = stability(texts, embed).set_index(["language", "corpora"])["cosine"]
    assert frame["fixed"].index.tolist() == ["a, b", HALVES]
    assert frame["moved"].index.tolist() == ["a, b", "a, c", "b, c", HALVES]
    assert frame["fixed", "a, b"] == pytest.approx(1, abs=1e-6)  # the same sentences: no noise
    assert abs(frame["moved"].drop(HALVES)).max() < 1e-6
    assert frame["moved", HALVES] == pytest.approx(1, abs=1e-6)


def test_it_reads_what_is_there_and_says_what_is_not(flores, tiny_model, write_tatoeba):
    request = Request((str(tiny_model),), flores, "cpu", rows=10, languages=("deu-Latn", "fra-Latn"))
    with pytest.raises(DataError, match="between corpora, and only 1 is here. ntrex was left out"):
        offset_stability.analyse(request)
    write_tatoeba(flores, 20)
    findings = offset_stability.analyse(request)
    frame = findings.tables["cosines"]
    assert frame["corpora"].unique().tolist() == ["flores, tatoeba", HALVES]
    assert frame["language"].unique().tolist() == ["deu-Latn", "fra-Latn"]
    assert set(findings.data) == {"flores", "tatoeba"}
    assert len(findings.figures) == 1
    assert sum("was left out" in note for note in findings.notes) == len(offset_stability.CORPORA) - 2

    from xalign_models.models.building import load_encoder
    from xalign_models.models.names import find_spec

    raw = load_encoder(find_spec(str(tiny_model)).backbone.model, device="cpu").raw
    devtest, v1 = flores / "data" / "flores200_dataset" / "devtest", flores / "data" / "tatoeba" / "v1"

    def offset(a, b):
        x, y = (raw.encode(path.read_text().splitlines()[:10]) for path in (a, b))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).mean(0) - (
            y / np.linalg.norm(y, axis=1, keepdims=True)
        ).mean(0)

    one = offset(devtest / "deu_Latn.devtest", devtest / "eng_Latn.devtest")
    other = offset(v1 / "tatoeba.deu-eng.deu", v1 / "tatoeba.deu-eng.eng")
    expected = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert frame["cosine"].iloc[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("prompts", "used"),
    [
        ({"query": "ask: ", "passage": "tell: "}, ["ask: ", "tell: "]),
        ({"query": "ask: ", "document": "tell: ", "default": "say: "}, ["ask: ", "tell: "]),
        ({"default": "say: "}, ["say: "]),
        ({}, [""]),
    ],
)
def test_offsets_are_taken_under_the_prompts_of_both_sides(
    flores, write_tatoeba, planted, make_encoder, monkeypatch, prompts, used
):
    write_tatoeba(flores, 20)
    rows = [f"x {i}" for i in range(9)]
    monkeypatch.setattr(offset_stability, "sides", lambda *_: (rows[:4], rows[4:]))
    monkeypatch.setattr(Request, "load", lambda *_: make_encoder(planted(), prompts=prompts))
    found = offset_stability.analyse(Request(("planted",), flores, languages=("deu-Latn",)))
    assert found.tables["cosines"]["prompt"].unique().tolist() == used


@pytest.mark.parametrize("languages", [("eng-Latn",), ("tha-Thai",), ("deu-Latn", "tha-Thai", "eng-Latn")])
def test_languages_without_an_offset_are_refused(flores, write_tatoeba, languages):
    write_tatoeba(flores, 20)
    with pytest.raises(LanguageError, match="have deu-Latn, .*, tur-Latn; choose among these"):
        offset_stability.analyse(Request(("none",), flores, languages=languages))
