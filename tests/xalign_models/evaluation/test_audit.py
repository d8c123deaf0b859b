"""Contamination: planted copies are found, and nothing else is."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xalign_models.cli.app import app
from xalign_models.evaluation import audit, recording
from xalign_models.specs import AlignmentSpec

ALPHABETS = {
    "Latn": "abcdefghijklmnop",
    "Cyrl": "абвгдежзийклмноп",
    "Thai": "กขฃคฅฆงจฉชซฌญฎฏ",
    "Hans": "的一是不了人我在有他这为之大来",
}
LANGUAGES = [f"{code}-{script}" for script in ALPHABETS for code in ("aaa", "bbb", "ccc", "ddd", "eee")]


FLORES = Path(os.environ.get("XALIGN_DATA", "-")) / "flores200_dataset"


@pytest.fixture
def data(workdir: Path) -> Callable[[str, str], None]:
    def write(name: str, text: str) -> None:
        path = workdir / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write


def sentence(rng: random.Random, language: str, words: int = 12) -> str:
    letters = ALPHABETS[language.rpartition("-")[2]]
    return " ".join("".join(rng.choices(letters, k=rng.randint(3, 8))) for _ in range(words))


def test_overlap_planted_in_twelve_languages_is_found_and_none_where_none_is():
    rng = random.Random(0)
    fit = {language: [sentence(rng, language) for _ in range(50)] for language in LANGUAGES}
    texts = [(sentence(rng, language), language) for language in LANGUAGES for _ in range(50)]
    planted = dict.fromkeys(LANGUAGES[::2] + LANGUAGES[1:4:2], 0)
    assert len(planted) == 12
    for count, language in enumerate(planted, 1):
        copies = (f"«{row.upper()}»!" for row in fit[language][:count])
        texts += [(copy, language) for copy in copies]
        planted[language] = count
    found = {row.language: row for row in audit.overlaps("T", texts, fit)}
    assert {language: row.exact for language, row in found.items() if row.share} == planted
    assert all(row.near == 0 for row in found.values())
    assert all(row.texts == 50 + planted.get(str(row.language), 0) for row in found.values())


@pytest.mark.parametrize("language", ["aaa-Latn", "aaa-Thai", "aaa-Hans"])
def test_a_sentence_of_which_a_word_was_changed_is_a_near_copy(language: str):
    rng = random.Random(1)
    rows = [sentence(rng, language, 60) for _ in range(10)]
    words = rows[3].split()
    words[30] = sentence(rng, language, 1)
    half = rows[4].split()[:30] + sentence(rng, language, 30).split()
    (row,) = audit.overlaps("T", [(" ".join(words), language), (" ".join(half), language)], {language: rows})
    assert (row.texts, row.exact, row.near) == (2, 0, 1)


def test_short_texts_are_not_counted():
    assert not list(audit.overlaps("T", [("Thank you!", "eng-Latn")], {"eng-Latn": ["thank you"]}))


def test_a_text_of_an_unknown_language_is_looked_for_in_all():
    fit = {"deu-Latn": ["Ein Satz, der lang genug ist."], "fra-Latn": ["Une phrase assez longue."]}
    (row,) = audit.overlaps("T", [("une phrase ASSEZ longue", None)], fit)
    assert (row.language, row.exact) == (None, 1)


def test_the_fit_text_of_a_parallel_method_has_both_sides(data: Callable[[str, str], None]):
    data("tatoeba_pairs/eng-deu.tsv", "one\teins\ntwo\tzwei\nthree\tdrei\n")
    data("tatoeba_pairs/eng-fra.tsv", "one\tun\ntwo\tdeux\nfour\tquatre\n")
    spec = AlignmentSpec("p", "procrustes", (), ("tatoeba_pairs",), 2)
    text = audit.fit_text(spec)
    assert text == {"deu-Latn": ["eins", "zwei"], "fra-Latn": ["un", "deux"], "eng-Latn": ["one", "two"] * 2}


@pytest.mark.parametrize(("declares", "status"), [(True, 0), (False, 1)])
def test_undeclared_overlap_sets_the_exit_status(
    declares: bool, status: int, data: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
):
    data("tatoeba_pairs/eng-deu.tsv", "A long sentence.\tEin langer Satz.\nAnother one, longer.\tEin anderer Satz.\n")
    task = "Orthogonality" if declares else "Tatoeba36"
    monkeypatch.setattr(recording, "task_texts", lambda name, languages: [("ein langer satz", "deu-Latn")])
    result = CliRunner().invoke(app, ["audit", "-t", task, "--corpus", "tatoeba_pairs"])
    assert result.exit_code == status, result.output
    assert "100.0%" in result.output


def test_the_recorder_keeps_every_text_and_its_language():
    recorder = recording.Recorder()
    vectors = recorder.encode_texts(["a", "b", "a"], ["de", None, "eng-Latn"])
    recorder.encode_texts(["a"], ["de"], side="query")
    assert vectors.shape == (3, 8) and (vectors[0] == vectors[2]).all() and (vectors[0] != vectors[1]).any()
    german, unknown, english = ("a", "deu-Latn"), ("b", None), ("a", "eng-Latn")
    assert list(recorder.seen) == [(german, ""), (unknown, ""), (english, ""), (german, "query")]


@pytest.mark.realdata
@pytest.mark.skipif(not FLORES.is_dir(), reason="XALIGN_DATA has no flores200_dataset")
def test_flores_dev_shares_sentences_with_devtest():
    """Issue 67 of facebookresearch/flores: some languages' dev has sentences of their devtest."""
    shared = set()
    for code in ("deu_Latn", "spa_Latn", "urd_Arab", "zho_Hans"):
        dev = (FLORES / "dev_sib" / f"{code}.tsv").read_text(encoding="utf-8").splitlines()
        test = (FLORES / "devtest" / f"{code}.devtest").read_text(encoding="utf-8").splitlines()
        language = code.replace("_", "-")
        fit = {language: [line.partition("\t")[2] for line in dev]}
        (row,) = audit.overlaps("FloresPrecision", [(line, language) for line in test], fit)
        shared |= {code} if row.exact else set()
    assert shared == {"spa_Latn", "urd_Arab"}
